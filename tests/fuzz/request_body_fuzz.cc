// A request body, read as both kinds of request: what is accepted keeps api.h's promises and is strict JSON,
// but for integers of any size; what is refused has an error that is strict JSON itself.

#include <cmath>
#include <cstdlib>
#include <set>

#include "common/api/api.h"
#include "common/api/conversations.h"
#include "common/api/prefix.h"
#include "common/api/tokenize.h"
#include "common/json/json.h"
#include "common/json/wide_json.h"

namespace {

using troupe::GenerateRequest;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_json_text(const std::string& text, bool is_array) {
  if (text.empty()) return;
  const auto value = troupe::parse_json_with_wide_integers(text);
  require(value.ok() && (is_array ? value->is_array() : value->is_object()));
}

void check_resume(const GenerateRequest& r) {
  if (!r.resume) return;
  require(r.stream && r.n == 1 && r.seed.value_or(r.resume->seed) == r.resume->seed);
  for (const int32_t id : r.resume->ids) require(id >= 0);
  require(r.resume->id.size() <= 1024 && r.resume->created_s.value_or(0) >= 0);
}

void check_accepted(const GenerateRequest& r) {
  if (r.kind == GenerateRequest::Kind::kChat) {
    require(!r.messages.empty() && r.messages.size() <= troupe::ApiLimits{}.messages_max);
  } else if (const auto* text = std::get_if<std::string>(&r.prompt)) {
    require(!text->empty());
  } else {
    require(!std::get<std::vector<int32_t>>(r.prompt).empty());
  }
  for (const auto& message : r.messages) {
    require(troupe::is_valid_utf8(message.content));
    check_json_text(message.extra_json, false);
  }
  require(!r.temperature || (*r.temperature >= 0 && *r.temperature <= 2));
  require(!r.top_p || (*r.top_p > 0 && *r.top_p <= 1));
  require(!r.top_k || *r.top_k >= -1);
  require(!r.min_p || (*r.min_p >= 0 && *r.min_p <= 1));
  require(!r.max_tokens || *r.max_tokens >= (r.echo ? 0 : 1));
  require(r.n >= 1 && r.n <= troupe::kChoicesMax);
  require(r.more_prompts.size() < troupe::kPromptsMax);
  require(!r.logprobs || (*r.logprobs >= 0 && *r.logprobs <= 20));
  require(!r.repetition_penalty || (*r.repetition_penalty >= 0.01 && *r.repetition_penalty <= 10));
  require(std::abs(r.presence_penalty) <= 2 && std::abs(r.frequency_penalty) <= 2);
  require(r.logit_bias.size() <= 4096);
  std::set<int32_t> biased;
  for (const auto& [id, bias] : r.logit_bias) {
    const bool is_ban = std::isinf(bias) && bias < 0;
    require(id >= 0 && (is_ban || std::abs(bias) <= 100) && biased.insert(id).second);
  }
  size_t stop_bytes = 0;
  for (const std::string& stop : r.stop) {
    require(!stop.empty());
    stop_bytes += stop.size();
  }
  require(stop_bytes <= 16384);
  for (const int32_t id : r.stop_token_ids) require(id >= 0);
  size_t banned_bytes = 0;
  for (const std::string& banned : r.banned_strings) {
    require(!banned.empty());
    banned_bytes += banned.size();
  }
  require(banned_bytes <= 16384);
  require(r.stream || !r.include_usage);
  require(r.include_usage || !r.continuous_usage);
  check_resume(r);
  require(r.user.size() <= 1024 && r.prompt_cache_key.size() <= 1024 && r.cache_salt.size() <= 1024);
  check_json_text(r.tools_json, true);
  check_json_text(r.documents_json, true);
  check_json_text(r.chat_template_kwargs_json, false);
}

void check(const troupe::ApiResult<GenerateRequest>& result, std::string_view body) {
  if (result.ok()) {
    require(troupe::parse_json_with_wide_integers(body).ok());
    check_accepted(result.value());
  } else {
    require(result.error().http_status == 400);
    require(troupe::parse_json(result.error().to_json()).ok());
  }
}

void check_error(const troupe::ApiError& error) {
  require(error.http_status == 400);
  require(troupe::parse_json(error.to_json()).ok());
}

void check_prefix_request(std::string_view body) {
  const auto prefix = troupe::parse_prefix_request(body);
  if (!prefix.ok()) return check_error(prefix.error());
  const GenerateRequest& source = prefix.value().source;
  require(!source.model.empty());
  require(!source.messages.empty() || source.kind == GenerateRequest::Kind::kCompletion);
  const auto ttl_s = prefix.value().ttl_s;
  require(!ttl_s || (*ttl_s >= 1 && *ttl_s <= troupe::kPrefixTtlMaxS));
}

void check_text_requests(std::string_view body) {
  const auto tokenize = troupe::parse_tokenize_request(body);
  if (tokenize.ok()) {
    const bool is_chat = !tokenize.value().source.messages.empty();
    require(is_chat == (tokenize.value().source.kind == GenerateRequest::Kind::kChat));
  } else {
    check_error(tokenize.error());
  }
  const auto detokenize = troupe::parse_detokenize_request(body);
  if (!detokenize.ok()) return check_error(detokenize.error());
  for (const int32_t id : detokenize.value().tokens) require(id >= 0);
}

void check_conversations(std::string_view body) {
  const auto tail = troupe::parse_conversation(body);
  if (tail.ok()) {
    const troupe::CachedConversation& t = tail.value();
    require(t.prefix_tokens >= 0 && t.prefix_tokens <= t.tokens);
    for (const int32_t id : t.ids) require(id >= 0);
    const auto same = troupe::parse_conversation(troupe::conversation_json(t));
    require(same.ok() && same.value().ids == t.ids && same.value().session == t.session);
  } else {
    check_error(tail.error());
  }
  const auto list = troupe::parse_conversation_list(body);
  if (!list.ok()) return check_error(list.error());
  const auto same = troupe::parse_conversation_list(troupe::conversation_list_json(list.value()));
  require(same.ok() && same.value().size() == list.value().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  troupe::ApiParser parser;
  check(parser.parse_chat(body), body);
  check(parser.parse_completion(body), body);
  troupe::ApiLimits limits;
  limits.for_others = true;
  troupe::ApiParser others(limits);
  for (const auto& result : {others.parse_chat(body), others.parse_completion(body)}) {
    if (!result.ok()) check_error(result.error());
  }
  check_text_requests(body);
  check_prefix_request(body);
  check_conversations(body);
  // Other servers' answers come from outside, too.
  (void)troupe::parse_models(body);
  const auto report = troupe::parse_load_report(body);
  if (report.ok()) require(troupe::parse_load_report(troupe::load_report_json(report.value())).ok());
  return 0;
}
