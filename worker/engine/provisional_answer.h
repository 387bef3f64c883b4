#pragma once

// An answer of which tokens may be taken back: it holds their events until they stay for good. Compute thread
// only; one an answer.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "worker/engine/token_event.h"
#include "worker/schedule/batch.h"
#include "worker/text/tokenizer/banned_strings.h"

namespace troupe {

class ProvisionalAnswer {
 public:
  // After so many rewinds, or tokens taken back, without a token that stays the answer ends, as one that has
  // its length.
  static constexpr int32_t kRewindsMax = 256, kTakenBackMax = 16 * 1024;

  // `sent`: the answer's tokens so far. REQUIRES: no string is empty; `tokenizer` outlives this.
  ProvisionalAnswer(const Tokenizer* tokenizer, const std::vector<std::string>& banned_strings,
                    std::span<const TokenId> prompt, std::span<const TokenId> sent);

  // The next token was sent before and came once more.
  void append_sent(TokenEvent event, StepToken& result, std::vector<TokenEvent>& released);
  // The next token was not drawn, and no other can be there: what comes before it stays.
  void append_forced(TokenEvent event, StepToken& result, std::vector<TokenEvent>& released);
  // Takes the event of the answer's next token. Appends to `released` the events that may go out, and tells
  // the scheduler by `result` what is settled and what is taken back.
  void append(TokenEvent event, StepToken& result, std::vector<TokenEvent>& released);
  // The answer has ended: what is held stays.
  void release_all(std::vector<TokenEvent>& released);

  // Changes with each time that tokens are taken back: tokens of steps planned before are not the answer's.
  uint32_t rewind_count() const { return rewind_count_; }
  // Prompt and answer so far.
  std::span<const TokenId> prompt() const { return prompt_; }
  std::span<const TokenId> emitted() const { return emitted_; }
  // Tokens that must not be drawn next.
  std::span<const TokenId> banned() const { return strings_.banned(); }

 private:
  void release(size_t count, std::vector<TokenEvent>& released);
  int32_t settled_count() const { return static_cast<int32_t>(emitted_.size() - held_.size()); }

  BannedStrings strings_;
  const std::vector<TokenId> prompt_;
  std::vector<TokenId> emitted_;
  std::deque<TokenEvent> held_;  // of the last ones of emitted_
  uint32_t rewind_count_ = 0;
  int32_t rewinds_left_ = kRewindsMax, taken_back_left_ = kTakenBackMax;  // until a token is released
};

}  // namespace troupe
