// Parses a request's body → GenerateRequest in one pass over simdjson's tape: no tree is built, a string is
// copied once, a path is only spelled out for an error. Each field has one table row: name, kinds of request,
// reader. A name without a row is a sampler's (read_samplers.h), one for the answer's format (read_format.h)
// or thoughts (read_thinking.h), one of the unsupported fields (unsupported.cc) or ignored.

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/api/read.h"
#include "common/api/read_format.h"
#include "common/api/read_samplers.h"
#include "common/api/read_thinking.h"

namespace troupe {

namespace {

using Kind = GenerateRequest::Kind;

constexpr size_t kStopBytesMax = 16 * 1024;
constexpr double kTopPMin = 1e-9;
constexpr size_t kStopTokenIdsMax = 1024;
constexpr int64_t kLogprobsMax = 20;
constexpr size_t kNameBytesMax = 1024;  // model, user, prompt_cache_key, cache_salt

// A request being read: fields come in any order, so checks that involve two of them wait until finish().
struct Draft {
  explicit Draft(const ApiLimits& l) : limits(l) {}
  const ApiLimits& limits;
  GenerateRequest request;
  std::optional<int64_t> max_completion_tokens;
  std::optional<int64_t> top_logprobs;
  bool wants_logprobs = false;  // chat's flag
  bool has_prompt = false;
  bool has_stream_options = false;
  FinalMessage final_message;
  std::optional<GivenSamplers> samplers;
  GivenFormat format;
  GivenThinking thinking;
};

Fault read_messages_field(Draft& draft, std::string_view name, dom::element value) {
  return read_messages(name, value, draft.limits, draft.request.messages);
}

Fault read_prompt_field(Draft& draft, std::string_view name, dom::element value) {
  draft.has_prompt = true;
  return read_prompt(name, value, draft.request);
}

// Front ends send one for each member of a group chat, and for each marker of a model's format.
Fault read_stop(Draft& draft, std::string_view name, dom::element value) {
  return read_strings(name, value, kStopBytesMax, draft.request.stop);
}

Fault read_banned_strings(Draft& draft, std::string_view name, dom::element value) {
  return read_lines(name, value, kStopBytesMax, draft.request.banned_strings);
}

Fault read_stop_token_ids(Draft& draft, std::string_view name, dom::element value) {
  if (!value.is_array() || value.get_array().value_unsafe().size() > kStopTokenIdsMax) {
    return expected(name, absl::StrCat("a list of at most ", kStopTokenIdsMax, " token ids"), value);
  }
  return read_id_list(name, value.get_array().value_unsafe(), draft.request.stop_token_ids);
}

Fault read_stream_options(Draft& draft, std::string_view name, dom::element value) {
  if (!value.is_object()) return expected(name, "an object", value);
  draft.has_stream_options = true;
  const dom::object fields = value.get_object().value_unsafe();
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    if (field.key == "include_usage") {
      if (auto f = read_bool("stream_options.include_usage", field.value, draft.request.include_usage))
        return f;
    } else if (field.key == "continuous_usage_stats") {
      if (auto f =
              read_bool("stream_options.continuous_usage_stats", field.value, draft.request.continuous_usage))
        return f;
    }
  }
  draft.request.continuous_usage &= draft.request.include_usage;  // as vLLM
  return std::nullopt;
}
Fault read_seed_field(Draft& draft, std::string_view name, dom::element value) {
  // Front ends send -1 for "draw one".
  if (integer_of(value) == -1) return std::nullopt;
  return read_seed(name, value, draft.request.seed);
}
Fault read_resume_field(Draft& draft, std::string_view name, dom::element value) {
  return read_resume(name, value, draft.request.resume);
}

Fault read_tools(Draft& draft, std::string_view name, dom::element value) {
  if (auto fault = check_objects(name, "an array of tools", value)) return fault;
  if (value.get_array().value_unsafe().size() > 0) append_element_json(draft.request.tools_json, value);
  return std::nullopt;
}

Fault read_tool_choice_field(Draft& draft, std::string_view name, dom::element value) {
  return read_tool_choice(name, value, draft.request);
}

Fault read_truncation_field(Draft& draft, std::string_view name, dom::element value) {
  return read_truncation(name, value, draft.request.truncation);
}

Fault read_documents(Draft& draft, std::string_view name, dom::element value) {
  if (auto fault = check_objects(name, "an array of documents", value)) return fault;
  append_element_json(draft.request.documents_json, value);
  return std::nullopt;
}

Fault read_template_kwargs(Draft& draft, std::string_view name, dom::element value) {
  if (!value.is_object()) return expected(name, "an object", value);
  const bool is_empty = value.get_object().value_unsafe().size() == 0;
  if (!is_empty) append_element_json(draft.request.chat_template_kwargs_json, value);
  return std::nullopt;
}

Fault read_persona_field(Draft& draft, std::string_view name, dom::element value) {
  return read_persona(name, value, draft.limits.takes_personas, draft.request);
}

Fault read_model(Draft& draft, std::string_view name, dom::element value) {
  if (value.is_string() && value.get_string().value_unsafe().empty()) {
    return expected(name, "the name of a model that GET /v1/models lists", value);
  }
  return read_string(name, value, kNameBytesMax, draft.request.model);
}

template <std::string GenerateRequest::*member>
Fault read_name_field(Draft& draft, std::string_view name, dom::element value) {
  return read_string(name, value, kNameBytesMax, draft.request.*member);
}

Fault read_metadata(Draft& draft, std::string_view, dom::element value) {
  dom::object notes;
  std::string_view user;
  if (!value.get(notes) && !notes.at_key("user_id").get(user))
    draft.request.metadata_user = user.substr(0, kNameBytesMax);
  return std::nullopt;
}

template <bool GenerateRequest::*member>
Fault read_flag_field(Draft& draft, std::string_view name, dom::element value) {
  return read_bool(name, value, draft.request.*member);
}

Fault read_temperature(Draft& draft, std::string_view name, dom::element value) {
  return read_optional_number(name, value, {0, 2}, draft.request.temperature);
}
// 0 leaves the most likely token alone, which no vocabulary has below kTopPMin.
Fault read_top_p(Draft& draft, std::string_view name, dom::element value) {
  auto fault = read_optional_number(name, value, {0, 1}, draft.request.top_p);
  if (draft.request.top_p) draft.request.top_p = std::max(*draft.request.top_p, kTopPMin);
  return fault;
}
Fault read_context_field(Draft& draft, std::string_view name, dom::element value) {
  return read_context_max(name, value, draft.request.context_tokens_max);
}
Fault read_kept_bytes(Draft& draft, std::string_view name, dom::element value) {
  return read_integer(name, value, {.min = 0}, draft.request.kept_prompt_bytes);
}
Fault read_min_p(Draft& draft, std::string_view name, dom::element value) {
  return read_optional_number(name, value, {0, 1}, draft.request.min_p);
}
Fault read_top_k(Draft& draft, std::string_view name, dom::element value) {
  return read_optional_integer(name, value, -1, draft.request.top_k);
}
// finish() checks 0, which prompt scoring uses.
Fault read_max_tokens(Draft& draft, std::string_view name, dom::element value) {
  const bool may_be_zero = draft.request.kind == Kind::kCompletion;
  return read_optional_integer(name, value, may_be_zero ? 0 : 1, draft.request.max_tokens);
}
Fault read_max_completion_tokens(Draft& draft, std::string_view name, dom::element value) {
  return read_optional_integer(name, value, 1, draft.max_completion_tokens);
}
Fault read_repetition_penalty(Draft& draft, std::string_view name, dom::element value) {
  return read_optional_number(name, value, {0.01, 10}, draft.request.repetition_penalty);
}
Fault read_presence_penalty(Draft& draft, std::string_view name, dom::element value) {
  return read_number(name, value, {-2, 2}, draft.request.presence_penalty);
}
Fault read_frequency_penalty(Draft& draft, std::string_view name, dom::element value) {
  return read_number(name, value, {-2, 2}, draft.request.frequency_penalty);
}
Fault read_bias(Draft& draft, std::string_view name, dom::element value) {
  return read_logit_bias(name, value, draft.request.logit_bias);
}

template <int32_t GenerateRequest::*member, int64_t min, int64_t max>
Fault read_int32_field(Draft& draft, std::string_view name, dom::element value) {
  int64_t number = 0;
  if (auto fault = read_integer(name, value, {min, max}, number)) return fault;
  draft.request.*member = static_cast<int32_t>(number);
  return std::nullopt;
}

// Reads a flag in chat, a number of alternatives in completions (where clients send false for none, too).
Fault read_logprobs(Draft& draft, std::string_view name, dom::element value) {
  if (draft.request.kind == Kind::kChat) return read_bool(name, value, draft.wants_logprobs);
  if (value.is_bool() && !value.get_bool().value_unsafe()) return std::nullopt;
  int64_t count = 0;
  if (auto fault = read_integer(name, value, {0, kLogprobsMax}, count)) return fault;
  draft.request.logprobs = static_cast<int32_t>(count);
  return std::nullopt;
}
Fault read_top_logprobs(Draft& draft, std::string_view name, dom::element value) {
  int64_t count = 0;
  if (auto fault = read_integer(name, value, {0, kLogprobsMax}, count)) return fault;
  draft.top_logprobs = count;
  return std::nullopt;
}
Fault read_generation_prompt(Draft& draft, std::string_view name, dom::element value) {
  auto fault = read_bool(name, value, draft.request.add_generation_prompt);
  draft.final_message.asks_generation_prompt = !fault && draft.request.add_generation_prompt;
  return fault;
}
Fault read_prefill(Draft& draft, std::string_view name, dom::element value) {
  return read_string(name, value, draft.limits.body_bytes_max, draft.final_message.prefill);
}

Fault read_goes_on_field(Draft& draft, std::string_view name, dom::element value) {
  return read_goes_on(name, value, draft.request, draft.final_message);
}

struct Row {
  std::string_view name;
  bool in_chat, in_completion;
  Fault (*read)(Draft&, std::string_view name, dom::element value);
};

// Sorted by name.
constexpr Row kRows[] = {
    {"add_generation_prompt", true, false, read_generation_prompt},
    {"assistant_prefill", true, false, read_prefill},
    {"banned_strings", true, true, read_banned_strings},
    {"best_of", false, true, read_int32_field<&GenerateRequest::best_of, 1, kChoicesMax>},
    {"cache_salt", true, true, read_name_field<&GenerateRequest::cache_salt>},
    {"chat_template_kwargs", true, false, read_template_kwargs},
    {"continue_final_message", true, false, read_goes_on_field},
    {"documents", true, false, read_documents},
    {"echo", false, true, read_flag_field<&GenerateRequest::echo>},
    {"frequency_penalty", true, true, read_frequency_penalty},
    {"ignore_eos", true, true, read_flag_field<&GenerateRequest::ignore_eos>},
    {"kept_prompt_bytes", false, true, read_kept_bytes},
    {"logit_bias", true, true, read_bias},
    {"logprobs", true, true, read_logprobs},
    {"max_completion_tokens", true, true, read_max_completion_tokens},
    {"max_context_length", false, true, read_context_field},
    {"max_tokens", true, true, read_max_tokens},
    {"messages", true, false, read_messages_field},
    {"metadata", true, true, read_metadata},
    {"min_p", true, true, read_min_p},
    {"model", true, true, read_model},
    {"n", true, true, read_int32_field<&GenerateRequest::n, 1, kChoicesMax>},
    {"parallel_tool_calls", true, false, read_flag_field<&GenerateRequest::parallel_tool_calls>},
    {"persona", true, true, read_persona_field},
    {"presence_penalty", true, true, read_presence_penalty},
    {"priority", true, true, read_int32_field<&GenerateRequest::priority, -1'000'000'000, 1'000'000'000>},
    {"prompt", false, true, read_prompt_field},
    {"prompt_cache_key", true, true, read_name_field<&GenerateRequest::prompt_cache_key>},
    {"repetition_penalty", true, true, read_repetition_penalty},
    {"safety_identifier", true, true, read_name_field<&GenerateRequest::safety_identifier>},
    {"seed", true, true, read_seed_field},
    {"stop", true, true, read_stop},
    {"stop_token_ids", true, true, read_stop_token_ids},
    {"stream", true, true, read_flag_field<&GenerateRequest::stream>},
    {"stream_options", true, true, read_stream_options},
    {"temperature", true, true, read_temperature},
    {"tool_choice", true, false, read_tool_choice_field},
    {"tools", true, false, read_tools},
    {"top_k", true, true, read_top_k},
    {"top_logprobs", true, false, read_top_logprobs},
    {"top_p", true, true, read_top_p},
    {"troupe_resume", true, true, read_resume_field},
    {"truncation", true, false, read_truncation_field},
    {"truncation_length", false, true, read_context_field},
    {"user", true, true, read_name_field<&GenerateRequest::user>},
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const Row& a, const Row& b) { return a.name < b.name; }));

// Fields by which a request is routed, limited, or its answer read, so that they must be understood here.
bool decides_the_way(std::string_view name) {
  return name == "messages" || name == "prompt" || name == "model" || name == "stream" ||
         name == "stream_options" || name == "troupe_resume" || name == "priority" || name == "cache_salt" ||
         name == "persona";
}

Fault read_field(Draft& draft, std::string_view name, dom::element value) {
  const Row* row = std::lower_bound(std::begin(kRows), std::end(kRows), name,
                                    [](const Row& r, std::string_view n) { return r.name < n; });
  const Kind kind = draft.request.kind;
  const bool is_known = row != std::end(kRows) && row->name == name;
  const bool applies = is_known && (kind == Kind::kChat ? row->in_chat : row->in_completion);
  if (!is_known && GivenSamplers::knows(name)) {
    if (!draft.samplers) draft.samplers.emplace();
    draft.samplers->take(name, value);
    return std::nullopt;
  }
  if (!is_known && GivenFormat::knows(name)) {
    return draft.limits.for_others ? std::nullopt : draft.format.take(name, value, draft.request);
  }
  if (kind == Kind::kChat && GivenThinking::knows(name)) {
    const Fault fault = draft.thinking.take(name, value, draft.request);
    return draft.limits.for_others ? std::nullopt : fault;
  }
  if (!applies) return draft.limits.for_others ? std::nullopt : check_unsupported(kind, name, value);
  Fault fault = row->read(draft, name, value);
  if (fault && draft.limits.for_others && !decides_the_way(name))
    return std::nullopt;  // it is theirs to judge
  return fault;
}

// Checks required fields and rules that involve more than one field.
Fault finish(Draft& draft) {
  GenerateRequest& request = draft.request;
  if (request.kind == Kind::kChat && request.messages.empty()) {
    return missing("messages", "an array of at least one message");
  }
  if (request.kind == Kind::kCompletion && !draft.has_prompt) return missing("prompt", kPromptRule);
  draft.thinking.settle(request);
  if (draft.max_completion_tokens) request.max_tokens = draft.max_completion_tokens;
  const Fault fault_of_samplers = draft.samplers ? draft.samplers->settle(request) : std::nullopt;
  if (draft.limits.for_others) return std::nullopt;
  if (fault_of_samplers) return fault_of_samplers;
  if (auto fault = settle_final_message(request, draft.final_message)) return fault;
  if (draft.has_stream_options && !request.stream) {
    return ApiError::bad_field("stream_options", "'stream_options' is only allowed when 'stream' is true.");
  }
  if (draft.top_logprobs.value_or(0) > 0 && !draft.wants_logprobs) {
    return ApiError::bad_field("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true.");
  }
  if (draft.wants_logprobs) request.logprobs = static_cast<int32_t>(draft.top_logprobs.value_or(0));
  if (request.max_tokens == 0 && !request.echo) {
    return ApiError::bad_field("max_tokens",
                               "'max_tokens' must be an integer of at least 1 (0 only with 'echo'), not 0.");
  }
  if (auto fault = check_tool_choice(request)) return fault;
  // (The function once, as clients that name one expect: several calls are an error to instructor.)
  if (request.tool_choice == ToolChoice::kNamed) request.parallel_tool_calls = false;
  if (auto fault = check_best_of(request)) return fault;
  if (auto fault = check_context(request)) return fault;
  return check_resume(request);
}

Fault read_fields(Draft& draft, dom::object fields) {
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_field(draft, field.key, field.value)) return fault;
  }
  return finish(draft);
}

}  // namespace

Fault read_request_field(const ApiLimits& limits, std::string_view name, dom::element value,
                         GenerateRequest& request) {
  Draft draft(limits);
  std::swap(draft.request, request);
  Fault fault = read_field(draft, name, value);
  std::swap(draft.request, request);
  return fault;
}

ApiParser::ApiParser(const ApiLimits& limits) : limits_(limits), json_(std::make_unique<StrictJson>()) {}
ApiParser::~ApiParser() = default;
ApiParser::ApiParser(ApiParser&&) noexcept = default;
ApiParser& ApiParser::operator=(ApiParser&&) noexcept = default;

ApiResult<GenerateRequest> ApiParser::parse(Kind kind, JsonText body) {
  Draft draft(limits_);
  draft.request.kind = kind;
  auto fields = parse_body(*json_, body, limits_);
  Fault fault = fields.ok() ? read_fields(draft, *fields) : fields.error();
  json_->release_large();
  if (fault) return *std::move(fault);
  return std::move(draft.request);
}

ApiResult<GenerateRequest> ApiParser::parse_chat(JsonText body) {
  return parse(Kind::kChat, body);
}

ApiResult<GenerateRequest> ApiParser::parse_completion(JsonText body) {
  return parse(Kind::kCompletion, body);
}

ApiResult<GenerateRequest> parse_chat_request(std::string_view body, const ApiLimits& limits) {
  return ApiParser(limits).parse_chat(body);
}

ApiResult<GenerateRequest> parse_completion_request(std::string_view body, const ApiLimits& limits) {
  return ApiParser(limits).parse_completion(body);
}

}  // namespace troupe
