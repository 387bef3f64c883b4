#pragma once

// A tokenizer's vocabulary as constrained decoding needs it: its tokens' bytes, in bands by length. Built
// once a tokenizer; immutable and shared by all threads and grammars.

#include <memory>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "common/grammar/tokens/band.h"

namespace troupe::grammar {

// Special tokens are no text of an answer, but a grammar may ask for one by name: theirs is this byte, which
// UTF-8 has nowhere, and the name.
inline constexpr char kMarkByte = '\xFF';
inline std::string mark_text(std::string_view name) {
  return kMarkByte + std::string(name);
}
inline bool is_mark_or_empty(std::string_view text) {
  return text.empty() || text.front() == kMarkByte;
}

class Vocabulary {
 public:
  // `texts`: bytes of each token, by id; mark_text() of special ones; empty for those that are no text
  // (unused ids), which no grammar allows. `end_tokens`: ids that end an answer, allowed where it is
  // complete. Errors (kInvalidArgument): a text or an id out of bounds.
  static StatusOr<std::shared_ptr<const Vocabulary>> make(std::vector<std::string> texts,
                                                          std::vector<int32_t> end_tokens);

  size_t size() const { return texts_.size(); }
  // Words of a mask: a bit for every token, the first in the lowest bit of the first word.
  size_t mask_words() const { return (texts_.size() + 31) / 32; }
  std::string_view text(int32_t token) const { return texts_[static_cast<size_t>(token)]; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const;
  // By length of their texts; some may be empty.
  const std::vector<Band>& bands() const { return bands_; }
  size_t memory_bytes() const;

 private:
  Vocabulary() = default;
  std::vector<std::string> texts_;
  std::vector<int32_t> end_tokens_;
  std::vector<Band> bands_;
};

}  // namespace troupe::grammar
