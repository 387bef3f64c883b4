#include "worker/http/response_builder.h"

#include <iterator>
#include <utility>

#include "common/api/sse.h"

namespace troupe {

Answer::Answer(Options options)
    : options_(std::move(options)),
      states_(static_cast<size_t>(options_.choice_count)),
      open_count_(states_.size()),
      waits_for_first_(options_.echo.has_value() && options_.wants_logprobs) {
  states_.front().begun = options_.begun;
}

// Hands `give` the pieces that can be sent now.
template <typename Give>
void Answer::in_turn(EngineOutput piece, Give give) {
  if (waits_for_first_ && piece.choice != 0) {
    early_.push_back(std::move(piece));
    return;
  }
  if (std::exchange(waits_for_first_, false)) {
    prompt_logprobs_ = std::move(piece.prompt_logprobs);
    const std::vector<int64_t>& offsets = options_.echo->offsets;
    for (size_t i = 0; i < prompt_logprobs_.size() && i < offsets.size(); ++i)
      prompt_logprobs_[i].text_offset = offsets[i];
  }
  give(std::move(piece));
  for (EngineOutput& early : std::exchange(early_, {})) give(std::move(early));
}

// Prepends the prompt's text and log-probabilities to the piece.
void Answer::put_echo_before(EngineOutput& piece) const {
  piece.text.insert(0, options_.echo->text);
  piece.logprobs.insert(piece.logprobs.begin(), prompt_logprobs_.begin(), prompt_logprobs_.end());
}

Answer::State& Answer::take(EngineOutput& piece) {
  State& state = states_[static_cast<size_t>(piece.choice)];
  usage_.completion_tokens += piece.usage.completion_tokens - state.completion_tokens;
  state.completion_tokens = piece.usage.completion_tokens;
  // The engine looks up the first choice first: its cached tokens predate the request, those of the other
  // choices may come from the first one.
  if (piece.choice == 0) usage_.prompt_tokens = piece.usage.prompt_tokens;
  if (piece.choice == 0) usage_.cached_tokens = piece.usage.cached_tokens;
  state.finish = piece.finish;
  if (state.finish != FinishReason::kNone) --open_count_;
  if (options_.echo) {
    for (TokenLogprob& token : piece.logprobs) token.text_offset += options_.echo->char_count;
    if (!state.begun) put_echo_before(piece);
  }
  return state;
}

void Answer::append_chunks(std::string& out, EngineOutput piece) {
  in_turn(std::move(piece), [&](EngineOutput told) { append_chunk(out, std::move(told)); });
}

void Answer::append_chunk(std::string& out, EngineOutput piece) {
  State& state = take(piece);
  const bool first = !std::exchange(state.begun, true);
  const bool last = state.finish != FinishReason::kNone;
  if (last || first || !piece.text.empty()) {
    Choice choice;
    choice.index = piece.choice;
    choice.text = piece.text;
    choice.finish = piece.finish;
    if (!piece.logprobs.empty()) choice.logprobs = &piece.logprobs;
    if (options_.tells_ids) choice.ids = &piece.ids;
    if (options_.tells_ids && !std::exchange(state.has_told_seed, true)) choice.seed = options_.seed;
    if (options_.tells_ids && done()) choice.usage = &usage_;
    append_sse_data(out, chunk_json(options_.header, choice, first, options_.include_usage));
  }
  if (!done()) return;
  if (options_.include_usage) append_sse_data(out, usage_chunk_json(options_.header, usage_));
  out += kSseDone;
}

void Answer::collect(EngineOutput piece) {
  in_turn(std::move(piece), [this](EngineOutput told) {
    State& state = take(told);
    state.begun = true;
    state.text += told.text;
    state.logprobs.insert(state.logprobs.end(), std::make_move_iterator(told.logprobs.begin()),
                          std::make_move_iterator(told.logprobs.end()));
  });
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
