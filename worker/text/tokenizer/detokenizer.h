#pragma once

// Streams the text of token ids, without special tokens but for those that are asked for. Never emits half a
// UTF-8 character (by the tokenizer's stream) nor text that may turn out to begin a stop string. Not
// thread-safe; one a stream.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/text/tokenizer/stop_matcher.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

class Detokenizer {
 public:
  struct Options {
    bool at_start = true;        // see Tokenizer::stream
    bool keeps_offsets = false;  // take_offsets() will be called
    // Sorted; these special tokens are text, too. May be null.
    std::shared_ptr<const std::vector<int32_t>> shown_special = nullptr;
  };
  // `tokenizer` must outlive this.
  Detokenizer(const Tokenizer* tokenizer, const std::vector<std::string>& stop_strings,
              const Options& options);
  Detokenizer(const Tokenizer* tokenizer, const std::vector<std::string>& stop_strings);

  // Takes one token; returns the text that is now safe to send. Once a stop string is complete stopped() is
  // true, the text before it has been returned, and further calls return nothing.
  std::string push(int32_t id);
  // Ends the stream: returns everything held back.
  std::string finish();
  bool stopped() const { return stopped_; }
  // The stop string that was complete first. REQUIRES: stopped()
  const std::string& stop_string() const { return text_; }
  // Offsets of the tokens whose text was returned completely since the last call, in order: each token's
  // start in the whole text, in characters (if it continues a character, that one's start). A token cut by a
  // stop string counts if any of its text came before the cut.
  std::vector<int64_t> take_offsets() { return std::exchange(offsets_, {}); }

 private:
  // A token whose text was not returned completely. Bytes and characters of valid text, from its start.
  struct HeldToken {
    int64_t begin_bytes = 0;
    int64_t begin_chars = 0;
    int64_t end_bytes = -1;  // -1: more of its text may come
    size_t waits_from = 0;   // its first byte in waiting_; npos: some of its text is placed already
  };

  std::string release(bool at_end);
  void add_text(const std::string& made, std::string_view last_bytes);
  void place_waiting(std::string_view made);
  void note_returned_text(size_t size, bool at_stop);

  bool is_shown(int32_t id) const;

  const Tokenizer* tokenizer_;
  const std::shared_ptr<const std::vector<int32_t>> shown_special_;
  std::unique_ptr<TokenStream> tokens_;
  StopMatcher stops_;
  std::string text_;    // valid text not yet sent (may begin a stop string); once stopped_, that string
  size_t matched_ = 0;  // bytes of it that stops_ has taken
  bool stopped_ = false;

  const bool keeps_offsets_;
  int64_t made_bytes_ = 0, made_chars_ = 0;  // of valid text, returned or not
  int64_t returned_bytes_ = 0;
  std::deque<HeldToken> held_;
  std::string waiting_;  // bytes of held tokens that are not text yet
  std::vector<int64_t> offsets_;
};

}  // namespace troupe
