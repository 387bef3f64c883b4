#include "worker/answer.h"

#include <iterator>
#include <utility>

#include "common/core/sse.h"

namespace troupe {

namespace {

// The prompt's text and tokens become the beginning of the piece's.
void put_before(const EchoedPrompt& echo, EngineOutput& piece) {
  piece.text.insert(0, echo.text);
  std::vector<TokenLogprob>& prompt = piece.prompt_logprobs;
  for (size_t i = 0; i < prompt.size() && i < echo.offsets.size(); ++i)
    prompt[i].text_offset = echo.offsets[i];
  piece.logprobs.insert(piece.logprobs.begin(), std::make_move_iterator(prompt.begin()),
                        std::make_move_iterator(prompt.end()));
  prompt.clear();
}

}  // namespace

Answer::Answer(Options options)
    : options_(std::move(options)),
      states_(static_cast<size_t>(options_.choice_count)),
      open_count_(states_.size()) {}

Answer::State& Answer::take(EngineOutput& piece) {
  State& state = states_[static_cast<size_t>(piece.choice)];
  usage_.completion_tokens += piece.usage.completion_tokens - state.completion_tokens;
  state.completion_tokens = piece.usage.completion_tokens;
  // The first choice is looked up first: what it finds cached was there before the request, what the others
  // find may be the first one's.
  if (piece.choice == 0) usage_.prompt_tokens = piece.usage.prompt_tokens;
  if (piece.choice == 0) usage_.cached_tokens = piece.usage.cached_tokens;
  state.finish = piece.finish;
  if (state.finish != FinishReason::kNone) --open_count_;
  if (options_.echo) {
    for (TokenLogprob& token : piece.logprobs) token.text_offset += options_.echo->char_count;
    if (!state.begun) put_before(*options_.echo, piece);
  }
  return state;
}

void Answer::append_chunks(std::string& out, EngineOutput piece) {
  State& state = take(piece);
  const bool first = !std::exchange(state.begun, true);
  const bool last = state.finish != FinishReason::kNone;
  if (last || first || !piece.text.empty()) {
    Choice choice;
    choice.index = piece.choice;
    choice.text = piece.text;
    choice.finish = piece.finish;
    if (!piece.logprobs.empty()) choice.logprobs = &piece.logprobs;
    append_sse_data(out, chunk_json(options_.header, choice, first, options_.include_usage));
  }
  if (!done()) return;
  if (options_.include_usage) append_sse_data(out, usage_chunk_json(options_.header, usage_));
  out += kSseDone;
}

void Answer::collect(EngineOutput piece) {
  State& state = take(piece);
  state.begun = true;
  state.text += piece.text;
  state.logprobs.insert(state.logprobs.end(), std::make_move_iterator(piece.logprobs.begin()),
                        std::make_move_iterator(piece.logprobs.end()));
}

std::string Answer::whole_json() const {
  std::vector<Choice> choices;
  for (const State& state : states_) {
    Choice& choice = choices.emplace_back();
    choice.index = static_cast<int32_t>(choices.size()) - 1;
    choice.text = state.text;
    choice.finish = state.finish;
    if (options_.wants_logprobs) choice.logprobs = &state.logprobs;
  }
  return answer_json(options_.header, choices, usage_);
}

}  // namespace troupe
