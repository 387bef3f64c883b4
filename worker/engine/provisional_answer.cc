#include "worker/engine/provisional_answer.h"

#include <iterator>
#include <utility>

namespace troupe {

ProvisionalAnswer::ProvisionalAnswer(const Tokenizer* tokenizer,
                                     const std::vector<std::string>& banned_strings,
                                     std::span<const TokenId> prompt, std::span<const TokenId> sent)
    : strings_(tokenizer, banned_strings),
      prompt_(prompt.begin(), prompt.end()),
      emitted_(sent.begin(), sent.end()) {
  for (const TokenId token : emitted_) strings_.append_sent(token);
}

void ProvisionalAnswer::append_sent(TokenEvent event, StepToken& result, std::vector<TokenEvent>& released) {
  strings_.append_sent(event.token);
  emitted_.push_back(event.token);
  released.push_back(std::move(event));
  result.settled_count = settled_count();
}

void ProvisionalAnswer::append_forced(TokenEvent event, StepToken& result,
                                      std::vector<TokenEvent>& released) {
  release_all(released);
  strings_.release_all();
  append_sent(std::move(event), result, released);
}

void ProvisionalAnswer::append(TokenEvent event, StepToken& result, std::vector<TokenEvent>& released) {
  const RequestId id = event.id;
  const int32_t cached_count = event.cached_count;
  const BannedStrings::Verdict verdict = strings_.push(event.token);
  emitted_.push_back(event.token);
  held_.push_back(std::move(event));
  release(verdict.released, released);
  result.settled_count = settled_count();
  if (!verdict.rewinds) return;
  const size_t taken_back = held_.size() - verdict.kept;
  emitted_.resize(emitted_.size() - taken_back);
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(verdict.kept), held_.end());
  taken_back_left_ -= static_cast<int32_t>(taken_back);
  if (rewinds_left_-- > 0 && taken_back_left_ >= 0) {
    result.kept_count = static_cast<int32_t>(emitted_.size());
    ++rewind_count_;
    return;
  }
  // The model draws nothing else: the answer ends before the string.
  release_all(released);
  TokenEvent& end = released.emplace_back();
  end.id = id;
  end.cached_count = cached_count;
  end.finish = FinishReason::kLength;
  result.finished = true;
}

void ProvisionalAnswer::release_all(std::vector<TokenEvent>& released) {
  release(held_.size(), released);
}

void ProvisionalAnswer::release(size_t count, std::vector<TokenEvent>& released) {
  if (count == 0) return;
  const auto end = held_.begin() + static_cast<ptrdiff_t>(count);
  released.insert(released.end(), std::make_move_iterator(held_.begin()), std::make_move_iterator(end));
  held_.erase(held_.begin(), end);
  rewinds_left_ = kRewindsMax;
  taken_back_left_ = kTakenBackMax;
}

}  // namespace troupe
