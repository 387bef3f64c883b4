#pragma once

// Finds strings that an answer must not contain while its tokens are drawn, and says how far the answer has
// to be taken back: to the token that such a string begins in, which is then not drawn there again (the
// banned strings of koboldcpp and ExLlamaV2). Case does not matter, character by character. A token is held
// as long as a string may begin in it; what is held no more stays for good. The verdicts depend on the tokens
// alone, so an answer that is resumed behind what was sent goes on as it would have. Pure; not thread-safe;
// one an answer.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/text/tokenizer/stop_matcher.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

class BannedStrings {
 public:
  // `tokenizer` must outlive this. REQUIRES: no string is empty.
  BannedStrings(const Tokenizer* tokenizer, const std::vector<std::string>& strings);

  // The answer's next token was sent before, so it stays whatever it completes. REQUIRES: none is held.
  void append_sent(int32_t token);

  // No token so far is taken back, whatever comes next.
  void release_all() { held_.clear(); }

  struct Verdict {
    size_t released = 0;   // leading ones of the held tokens, the new one included, that are held no more
    bool rewinds = false;  // a string is complete: of the held tokens behind those the first `kept` stay
    size_t kept = 0;       // (and are still held), the others are taken back
  };
  // The answer's next token was drawn.
  Verdict push(int32_t token);
  // Tokens that must not be drawn next: with them this place came to a string before. None twice.
  std::span<const int32_t> banned() const { return banned_; }

 private:
  // Text so far: the next token continues it.
  struct State {
    uint32_t matcher = 0;
    int64_t size = 0;      // bytes of text so far, in lower case
    std::string cut_char;  // first bytes of a character
  };
  struct Held {
    int32_t token = 0;
    State before;
    int64_t end = 0;              // once the text so far is as long, all the token's text is in it
    std::vector<int32_t> banned;  // where it was drawn
  };

  // Adds a token's text; returns where a string begins that is complete, or a negative number.
  int64_t add_text(int32_t token);
  size_t token_of(int64_t at) const;
  size_t release();

  const Tokenizer* tokenizer_;
  StopMatcher matcher_;
  State state_;  // but for its matcher, which is matcher_
  std::deque<Held> held_;
  std::vector<int32_t> banned_;
};

}  // namespace troupe
