#include "worker/http/response_builder.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "common/api/sse.h"

namespace troupe {

Answer::Answer(Options options)
    : options_(std::move(options)),
      states_(static_cast<size_t>(options_.prompt_count) * static_cast<size_t>(options_.choice_count)),
      prompts_(static_cast<size_t>(options_.prompt_count)),
      open_count_(states_.size()) {
  states_.front().begun = options_.begun;
  usage_.truncated_messages = options_.places.left_out;
  for (size_t i = 0; i < states_.size() && options_.syntax.parses(); ++i)
    states_[i].parser =
        std::make_unique<AnswerParser>(options_.syntax, options_.header.id, static_cast<int32_t>(i));
  for (Prompt& prompt : prompts_)
    prompt.waits_for_first = !options_.echoes.empty() && options_.wants_logprobs;
}

// Hands `give` the pieces that can be sent now.
template <typename Give>
void Answer::in_turn(EngineOutput piece, Give give) {
  const size_t index = prompt_of(piece);
  Prompt& prompt = prompts_[index];
  if (prompt.waits_for_first && !is_first_of_prompt(piece)) {
    prompt.early.push_back(std::move(piece));
    return;
  }
  if (std::exchange(prompt.waits_for_first, false)) {
    prompt.logprobs = std::move(piece.prompt_logprobs);
    const std::vector<int64_t>& offsets = options_.echoes[index].offsets;
    for (size_t i = 0; i < prompt.logprobs.size() && i < offsets.size(); ++i)
      prompt.logprobs[i].text_offset = offsets[i];
  }
  give(std::move(piece));
  for (EngineOutput& early : std::exchange(prompt.early, {})) give(std::move(early));
}

// Prepends the prompt's text and log-probabilities to the piece.
void Answer::put_echo_before(EngineOutput& piece, const EchoedPrompt& echo) const {
  const std::vector<TokenLogprob>& scores = prompts_[prompt_of(piece)].logprobs;
  piece.text.insert(0, echo.text);
  piece.logprobs.insert(piece.logprobs.begin(), scores.begin(), scores.end());
}

Answer::State& Answer::take(EngineOutput& piece) {
  State& state = states_[static_cast<size_t>(piece.choice)];
  usage_.completion_tokens += piece.usage.completion_tokens - state.usage.completion_tokens;
  // The engine looks up a prompt's first choice first: its cached tokens predate the request, those of the
  // other choices may come from the first one.
  if (is_first_of_prompt(piece)) {
    usage_.prompt_tokens += piece.usage.prompt_tokens - state.usage.prompt_tokens;
    usage_.cached_tokens += piece.usage.cached_tokens - state.usage.cached_tokens;
    if (!options_.places.message_ends.empty())
      usage_.cache_break = options_.places.break_at(usage_.cached_tokens);
  }
  state.usage = piece.usage;
  state.finish = piece.finish;
  state.stop = piece.stop;
  for (const TokenLogprob& token : piece.logprobs) state.logprob += token.logprob.value_or(0);
  state.logprob_count += static_cast<int64_t>(piece.logprobs.size());
  if (state.finish != FinishReason::kNone) --open_count_;
  if (!options_.echoes.empty()) {
    const EchoedPrompt& echo = options_.echoes[prompt_of(piece)];
    for (TokenLogprob& token : piece.logprobs) token.text_offset += echo.char_count;
    if (!state.begun) put_echo_before(piece, echo);
  }
  return state;
}

void Answer::append_chunks(std::string& out, EngineOutput piece) {
  in_turn(std::move(piece), [&](EngineOutput next) { append_chunk(out, std::move(next)); });
}

AnswerDelta Answer::parse(State& state, EngineOutput& piece) {
  AnswerDelta delta;
  const int64_t before = state.parser->thought_tokens().value_or(0);
  state.parser->push(piece.text, static_cast<int32_t>(piece.ids.size()), delta);
  if (piece.finish != FinishReason::kNone) state.parser->finish(delta);
  const auto thought_tokens = state.parser->thought_tokens();
  if (thought_tokens)
    usage_.reasoning_tokens = usage_.reasoning_tokens.value_or(0) + *thought_tokens - before;
  return delta;
}

void Answer::append_chunk(std::string& out, EngineOutput piece) {
  State& state = take(piece);
  const bool first = !std::exchange(state.begun, true);
  const bool last = state.finish != FinishReason::kNone;
  AnswerDelta delta;
  if (state.parser != nullptr) {
    delta = parse(state, piece);
    piece.text = std::move(delta.content);
    state.held_ids.insert(state.held_ids.end(), piece.ids.begin(), piece.ids.end());
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(state.logprobs));
  }
  const bool says = !piece.text.empty() || !delta.reasoning.empty() || !delta.calls.empty();
  if (says || first || last) {
    if (state.parser != nullptr) {
      piece.ids = std::exchange(state.held_ids, {});
      piece.logprobs = std::exchange(state.logprobs, {});
    }
    Choice choice;
    choice.index = piece.choice;
    choice.text = piece.text;
    choice.reasoning = delta.reasoning;
    choice.calls = delta.calls;
    choice.has_calls = state.parser != nullptr && state.parser->has_calls();
    choice.finish = piece.finish;
    choice.stop = &state.stop;
    if (!piece.logprobs.empty()) choice.logprobs = &piece.logprobs;
    if (options_.includes_token_ids) choice.ids = &piece.ids;
    if (options_.includes_token_ids && !std::exchange(state.has_sent_seed, true)) choice.seed = options_.seed;
    if (options_.includes_token_ids && done()) choice.usage = &usage_;
    append_sse_data(out, chunk_json(options_.header, choice, first, options_.usage, usage_));
  }
  if (!done()) return;
  if (options_.usage != ChunkUsage::kNone) append_sse_data(out, usage_chunk_json(options_.header, usage_));
  out += kSseDone;
}

void Answer::collect(EngineOutput piece) {
  in_turn(std::move(piece), [this](EngineOutput next) {
    State& state = take(next);
    state.begun = true;
    if (state.parser != nullptr) {
      collect_parsed(state, next);
    } else {
      state.text += next.text;
    }
    if (options_.wants_logprobs) {
      state.logprobs.insert(state.logprobs.end(), std::make_move_iterator(next.logprobs.begin()),
                            std::make_move_iterator(next.logprobs.end()));
    }
  });
}

void Answer::collect_parsed(State& state, EngineOutput& piece) {
  AnswerDelta delta = parse(state, piece);
  state.text += delta.content;
  state.reasoning += delta.reasoning;
  for (ToolCall& call : delta.calls) {
    if (static_cast<size_t>(call.index) < state.calls.size()) {
      state.calls[static_cast<size_t>(call.index)].arguments += call.arguments;
    } else {
      state.calls.push_back(std::move(call));
    }
  }
}

HeaderList Answer::headers() const {
  HeaderList list;
  if (usage_.truncated_messages > 0)
    list.emplace_back("x-truncated-messages", std::to_string(usage_.truncated_messages));
  if (usage_.cache_break) {
    const CacheBreak& at = *usage_.cache_break;
    list.emplace_back("x-cache-break",
                      "message=" + std::to_string(at.message) + ";token=" + std::to_string(at.token));
  }
  return list;
}

std::vector<size_t> Answer::returned() const {
  std::vector<size_t> indexes(states_.size());
  std::iota(indexes.begin(), indexes.end(), 0);
  if (options_.best_count == 0) return indexes;
  const auto mean = [this](size_t index) {
    const State& state = states_[index];
    // (One without a token has none to be judged by.)
    if (state.logprob_count == 0) return -std::numeric_limits<double>::infinity();
    return state.logprob / static_cast<double>(state.logprob_count);
  };
  std::vector<size_t> best;
  const auto count = static_cast<ptrdiff_t>(options_.choice_count);
  for (auto prompt = indexes.begin(); prompt != indexes.end(); prompt += count) {
    std::stable_sort(prompt, prompt + count, [&](size_t a, size_t b) { return mean(a) > mean(b); });
    best.insert(best.end(), prompt, prompt + options_.best_count);
  }
  return best;
}

std::string Answer::whole_json() const {
  std::vector<Choice> choices;
  for (const size_t index : returned()) {
    const State& state = states_[index];
    Choice& choice = choices.emplace_back();
    choice.index = static_cast<int32_t>(choices.size()) - 1;
    choice.text = state.text;
    choice.reasoning = state.reasoning;
    choice.calls = state.calls;
    choice.has_calls = state.parser != nullptr && state.parser->has_calls();
    choice.finish = state.finish;
    choice.stop = &state.stop;
    if (options_.wants_logprobs) choice.logprobs = &state.logprobs;
  }
  return answer_json(options_.header, choices, usage_);
}

}  // namespace troupe
