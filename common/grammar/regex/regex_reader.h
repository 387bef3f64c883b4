#pragma once

// The characters of a regular expression's text: escapes, classes, counts.

#include <algorithm>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "common/grammar/regex/char_set.h"

namespace troupe::grammar {

class RegexReader {
 public:
  // REQUIRES: UTF-8; `text` outlives this.
  explicit RegexReader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip() { ++at_; }
  bool take(std::string_view token);
  // An error that says where.
  Status error(std::string_view message) const;

  // One character or escape outside a class.
  StatusOr<CharSet> single();
  // Behind a `[`, to its end.
  StatusOr<CharSet> char_class(bool ignores_case);
  // {n}, {n,} or {n,m}; false, and nothing is read, if it is none: then it is text.
  bool counts(uint32_t& min, uint32_t& max);

 private:
  StatusOr<CharSet> escape(bool in_class);
  StatusOr<CharSet> class_item();
  StatusOr<uint32_t> hex(size_t digits);
  StatusOr<uint32_t> unicode_escape();
  uint32_t character();
  bool number(uint32_t& out);

  std::string_view text_;
  size_t at_ = 0;
  bool is_negated_ = false;  // in a class that begins with ^
};

// Reads the character that begins at `at`, which moves behind it. REQUIRES: valid UTF-8
uint32_t next_character(std::string_view text, size_t& at);

}  // namespace troupe::grammar
