#include "worker/input/prompt_pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "worker/input/encode_chat.h"
#include "worker/input/encode_text.h"
#include "worker/input/prepare_grammar.h"
#include "worker/input/prepare_guidance.h"
#include "worker/input/prepare_resume.h"
#include "worker/input/prepare_samplers.h"
#include "worker/input/prompt_cut.h"
#include "worker/input/shared_prefix.h"
#include "worker/input/truncate_chat.h"

namespace troupe {

namespace {

// Draws the answer's length if the request sets no limit: geometric, as if any word could end it.
int64_t unasked_count(const ServedModel& model, uint64_t seed) {
  if (model.answer_count_mean <= 0) return std::numeric_limits<int64_t>::max();
  constexpr uint64_t kBeyondAnyPosition = uint64_t{1} << 62;  // the sampler's own draws are by position
  const double u = counter_uniform(seed, kBeyondAnyPosition);
  return 1 + std::llround(-std::log1p(-u) * (model.answer_count_mean - 1));
}

// The most tokens of an answer in so much room, if the request says none.
int64_t default_count(const ServedModel& model, const GenerateRequest& request, int64_t room) {
  const bool is_completion = request.kind == GenerateRequest::Kind::kCompletion;
  if (!is_completion || model.completion_count_default == 0) return room;
  return std::min<int64_t>(room, model.completion_count_default);
}

// The most tokens the answer may have, or why there is no room for it.
ApiResult<int32_t> answer_room(const ServedModel& model, const GenerateRequest& request,
                               std::string_view field, size_t prompt_count, uint64_t seed) {
  const int64_t room = model.total_count_max - static_cast<int64_t>(prompt_count);
  const auto count = static_cast<int64_t>(prompt_count);
  const std::string whose = field == "negative_prompt" ? "the negative prompt's " : "the prompt's ";
  if (room < 1) return ApiError::context_length(field, count, model.total_count_max);
  if (!request.max_tokens) {
    const int64_t count_max = default_count(model, request, room);
    return static_cast<int32_t>(std::min(count_max, unasked_count(model, seed)));
  }
  if (*request.max_tokens == 0) return 1;  // the engine's minimum, of which nothing is emitted
  if (*request.max_tokens > room) {
    auto error = ApiError::context_length("max_tokens", count, model.total_count_max);
    error.message = "max_tokens " + std::to_string(*request.max_tokens) + " and " + whose +
                    std::to_string(prompt_count) + " tokens exceed the " +
                    std::to_string(model.total_count_max) + " that fit this model; at most " +
                    std::to_string(room) + " are left for the answer";
    return error;
  }
  return static_cast<int32_t>(*request.max_tokens);
}

SamplingParams sampling_of(const ModelConfig& config, const GenerateRequest& request, uint64_t seed) {
  SamplingParams sampling;
  sampling.temperature = static_cast<float>(request.temperature.value_or(config.temperature.value_or(1.0)));
  sampling.top_p = static_cast<float>(request.top_p.value_or(config.top_p.value_or(1.0)));
  sampling.min_p = static_cast<float>(request.min_p.value_or(config.min_p.value_or(0.0)));
  const int64_t top_k = request.top_k.value_or(config.top_k.value_or(0));
  sampling.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, config.vocab_size));
  sampling.seed = seed;
  sampling.repetition_penalty =
      static_cast<float>(request.repetition_penalty.value_or(config.repetition_penalty.value_or(1.0)));
  sampling.presence_penalty = static_cast<float>(request.presence_penalty);
  sampling.frequency_penalty = static_cast<float>(request.frequency_penalty);
  sampling.logit_bias = request.logit_bias;
  return sampling;
}

std::optional<ApiError> check_bias(const ModelConfig& config, const GenerateRequest& request) {
  for (const auto& [id, bias] : request.logit_bias) {
    if (id < config.vocab_size) continue;
    const std::string name = std::to_string(id);
    return ApiError::bad_field("logit_bias." + name, "token id " + name + " is outside the vocabulary [0, " +
                                                         std::to_string(config.vocab_size) + ")");
  }
  return std::nullopt;
}

std::optional<EchoedPrompt> echo_of(const ServedModel& model, const GenerateRequest& request,
                                    const GenerateRequest::Prompt& source,
                                    const std::vector<TokenId>& prompt) {
  if (!request.echo) return std::nullopt;
  return echo_prompt(*model.tokenizer, std::get_if<std::string>(&source), prompt,
                     request.logprobs.has_value());
}

// Limit of an answer's log-probabilities of prompts; each takes a hundred bytes of the answer.
constexpr int64_t kPromptScoresMax = int64_t{1} << 18;

std::optional<ApiError> check_scores(const GenerateRequest& request, const PreparedRequest& prepared) {
  size_t prompt_count = prepared.engine.prompt.size();
  for (const PreparedPrompt& more : prepared.more) prompt_count += more.engine.prompt.size();
  if (!request.echo || !request.logprobs) return std::nullopt;
  const int32_t made = request.candidate_count();
  const int64_t count = static_cast<int64_t>(prompt_count) * made * (*request.logprobs + 1);
  if (count <= kPromptScoresMax) return std::nullopt;
  return ApiError::bad_field(
      "logprobs", "with 'echo', the prompt's " + std::to_string(prompt_count) + " tokens × '" +
                      (made > request.n ? "best_of" : "n") + "' " + std::to_string(made) + " × ('logprobs' " +
                      std::to_string(*request.logprobs) + " + 1) are " + std::to_string(count) +
                      " log-probabilities; at most " + std::to_string(kPromptScoresMax) +
                      " are returned in one answer");
}

// A chat's answer is a separate text, unless it goes on with the last message. A completion continues its
// prompt, unless the prompt has no text (<s>).
bool continues_text(const ServedModel& model, const GenerateRequest& request,
                    const std::vector<TokenId>& prompt) {
  const bool goes_on = request.kind == GenerateRequest::Kind::kCompletion || request.continue_final_message;
  return goes_on && !std::all_of(prompt.begin(), prompt.end(),
                                 [&](TokenId id) { return model.tokenizer->is_special(id); });
}

// A special token has no text that a stop string could be found in: the answer ends at the token itself.
std::vector<int32_t> special_stops(const ServedModel& model, const GenerateRequest& request) {
  std::vector<int32_t> ids = request.stop_token_ids;
  for (const std::string& text : request.stop) {
    const std::optional<int32_t> id = model.tokenizer->token_to_id(text);
    if (id && *id < model.config.vocab_size && model.tokenizer->is_special(*id)) ids.push_back(*id);
  }
  return ids;
}

// Makes the engine's request of an encoded prompt.
std::optional<ApiError> settle(const ServedModel& model, const GenerateRequest& request,
                               std::string_view field, std::vector<TokenId> prompt, uint64_t seed,
                               PreparedPrompt& out) {
  if (prompt.empty()) return ApiError::bad_field(field, "comes to no tokens at all");
  if (auto fault = unknown_token(model, field, prompt)) return fault;
  auto max_new_count = answer_room(model, request, field, prompt.size(), seed);
  if (!max_new_count.ok()) return max_new_count.error();
  EngineRequest& engine = out.engine;
  auto guidance = prepare_guidance(model, request, prompt, std::move(engine.guidance));
  if (!guidance.ok()) return guidance.error();
  if (*guidance) {
    const size_t negative_count = (*guidance)->negative_prompt.size();
    auto behind = answer_room(model, request, "negative_prompt", negative_count, seed);
    if (!behind.ok()) return behind.error();
    *max_new_count = std::min(*max_new_count, *behind);
    engine.guidance = *std::move(guidance);
  }
  engine.continues_text = continues_text(model, request, prompt);
  engine.prompt = std::move(prompt);
  engine.max_new_count = *max_new_count;
  engine.sampling = sampling_of(model.config, request, seed);
  engine.stop_token_ids = special_stops(model, request);
  engine.stop_strings = request.stop;
  engine.banned_strings = request.banned_strings;
  engine.ignore_eos = request.ignore_eos;
  engine.logprobs = request.logprobs;
  if (request.best_of > request.n && !engine.logprobs) engine.logprobs = 0;
  engine.prompt_logprobs = request.echo && request.logprobs.has_value();
  engine.prompt_only = request.max_tokens == 0;
  engine.spec.cut_to_fit = !request.max_tokens;
  if (!request.cache_salt.empty()) engine.spec.salt = hash_bytes(request.cache_salt);
  if (!request.samplers) return std::nullopt;
  return take_samplers({*model.tokenizer, model.config, model.breaker_cache}, *request.samplers, engine);
}

// Cuts `request` to what fits, where it asks for that.
std::optional<ApiError> prepare_chat(const ServedModel& model, GenerateRequest& request, uint64_t seed,
                                     PreparedRequest& out) {
  if (request.truncation) {
    auto chat = truncate_chat(model, request);
    if (!chat.ok()) return chat.error();
    out.places = std::move(chat->places);
    out.next_beginning = std::move(chat->next_beginning);
    return settle(model, request, "messages", std::move(chat->prompt), seed, out);
  }
  ChatEncoding how = encoding_of(request);
  how.message_ends = &out.places.message_ends;
  auto prompt = encode_chat(model, request, how);
  if (!prompt.ok()) return prompt.error();
  return settle(model, request, "messages", std::move(*prompt), seed, out);
}

// A prompt that fits is encoded as any other; of one that does not the beginning that is to stay and the rest
// are encoded apart.
ApiResult<std::vector<TokenId>> encode_to_fit(const ServedModel& model, const GenerateRequest& request,
                                              const GenerateRequest::Prompt& source, std::string_view field) {
  const int64_t context = std::min<int64_t>(*request.context_tokens_max, model.total_count_max);
  const auto room = prompt_room(context, request.max_tokens);
  if (!room.ok()) return room.error();
  const auto* text = std::get_if<std::string>(&source);
  if (text == nullptr || static_cast<int64_t>(text->size()) <= model.prompt_bytes_max) {
    auto whole = encode_prompt(model, source, field);
    if (!whole.ok() || whole->size() <= room.value()) return whole;
    if (text == nullptr) return cut_prompt({}, *whole, room.value(), field);
  }
  const std::string_view kept = first_bytes(*text, request.kept_prompt_bytes);
  auto beginning = encode_text(model, kept, /*add_special=*/true, field);
  if (!beginning.ok()) return beginning;
  const std::string_view rest =
      last_bytes(std::string_view(*text).substr(kept.size()), model.prompt_bytes_max);
  const auto end = encode_text(model, rest, /*add_special=*/false, field);
  if (!end.ok()) return end;
  return cut_prompt(*std::move(beginning), end.value(), room.value(), field);
}

// `field`: the prompt's name in errors.
std::optional<ApiError> prepare_prompt(const ServedModel& model, const GenerateRequest& request,
                                       const GenerateRequest::Prompt& source, std::string_view field,
                                       uint64_t seed, PreparedPrompt& out) {
  auto prompt = request.context_tokens_max ? encode_to_fit(model, request, source, field)
                                           : encode_prompt(model, source, field);
  if (!prompt.ok()) return prompt.error();
  out.echo = echo_of(model, request, source, *prompt);
  return settle(model, request, field, std::move(*prompt), seed, out);
}

// Prepares a list's prompts after the first. A gateway's hints about the shared prefix are true of the first
// alone.
std::optional<ApiError> prepare_more(const ServedModel& model, const GenerateRequest& request, uint64_t seed,
                                     PreparedRequest& prepared) {
  for (const GenerateRequest::Prompt& source : request.more_prompts) {
    const std::string field = "prompt[" + std::to_string(prepared.more.size() + 1) + "]";
    PreparedPrompt& more = prepared.more.emplace_back();
    more.engine.guidance = prepared.engine.guidance;
    if (auto fault = prepare_prompt(model, request, source, field, seed, more)) return fault;
  }
  return std::nullopt;
}

std::optional<ApiError> prepare_answer_of(const ServedModel& model, const GenerateRequest& request,
                                          PreparedRequest& prepared) {
  EngineRequest& engine = prepared.engine;
  auto answer = prepare_answer(*model.tokenizer, model.forms, request, engine.prompt);
  if (!answer.ok()) return answer.error();
  prepared.syntax = std::move(answer->syntax);
  engine.shown_special = std::move(answer->shown_special);
  engine.thinking_limit = std::move(answer->thinking_limit);
  if (engine.thinking_limit == nullptr) return std::nullopt;
  return unknown_token(model, "thinking_token_budget", engine.thinking_limit->end);
}

}  // namespace

ApiResult<PreparedRequest> prepare_parsed(const ServedModel& model, GenerateRequest request,
                                          uint64_t random_seed, RoutingHints hints) {
  if (!is_named(model, request.model)) return ApiError::not_found_model(request.model);
  if (auto fault = check_bias(model.config, request)) return *std::move(fault);
  const uint64_t seed = request.resume ? request.resume->seed : request.seed.value_or(random_seed);
  PreparedRequest prepared;
  auto fault = request.kind == GenerateRequest::Kind::kChat
                   ? prepare_chat(model, request, seed, prepared)
                   : prepare_prompt(model, request, request.prompt,
                                    request.more_prompts.empty() ? "prompt" : "prompt[0]", seed, prepared);
  if (!fault) fault = prepare_more(model, request, seed, prepared);
  if (!fault && request.kind == GenerateRequest::Kind::kChat) {
    fault = prepare_answer_of(model, request, prepared);
  }
  if (!fault) {
    std::vector<EngineRequest*> prompts = {&prepared.engine};
    for (PreparedPrompt& more : prepared.more) prompts.push_back(&more.engine);
    fault =
        take_grammar({model.grammar_cache, *model.tokenizer, model.forms}, request, prepared.syntax, prompts);
  }
  if (!fault) fault = check_scores(request, prepared);
  if (fault) return *std::move(fault);
  prepared.kind = request.kind;
  prepared.stream = request.stream;
  if (request.include_usage)
    prepared.usage = request.continuous_usage ? ChunkUsage::kRunning : ChunkUsage::kNull;
  prepared.choice_count = request.candidate_count();
  prepared.best_count = request.best_of > request.n ? request.n : 0;
  prepared.wants_logprobs = request.logprobs.has_value();
  auto& spec = prepared.engine.spec;
  spec.set = hints.set;
  spec.planned = hints.planned;
  spec.session = hints.session;
  if (prepared.places.left_out > 0)
    hints.prefix_messages = std::min<int64_t>(hints.prefix_messages, prepared.places.fixed_count);
  spec.prefix_count = shared_prefix_count(model, request, prepared.engine.prompt, hints);
  if (request.resume) {
    const int64_t room = model.total_count_max - static_cast<int64_t>(prepared.engine.prompt.size());
    const int64_t count_max = request.max_tokens.value_or(default_count(model, request, room));
    if (auto refused = take_resume(model, *request.resume, count_max, prepared)) return *std::move(refused);
  }
  return prepared;
}

ApiResult<PreparedRequest> prepare_request(const ServedModel& model, GenerateRequest::Kind kind,
                                           std::string_view body, uint64_t random_seed,
                                           const RoutingHints& hints) {
  auto request = kind == GenerateRequest::Kind::kChat ? parse_chat_request(body, model.api)
                                                      : parse_completion_request(body, model.api);
  if (!request.ok()) return request.error();
  return prepare_parsed(model, *std::move(request), random_seed, hints);
}

}  // namespace troupe
