#pragma once

// Finds a form's marks in a text that comes in pieces. What may begin a mark is held, at most a mark's bytes;
// all else is handed on at once. Not thread-safe.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/tokenizer/stop_matcher.h"

namespace troupe {

class MarkScanner {
 public:
  // REQUIRES: no mark is empty; one is within another at most at that one's end
  explicit MarkScanner(const std::vector<std::string_view>& marks);

  // Takes bytes off `rest`, to the end or through the first mark, which is returned by its place in the list.
  // Appends to `text` what is no mark.
  std::optional<size_t> take(std::string_view& rest, std::string& text);
  std::optional<size_t> take(char byte, std::string& text) {
    std::string_view rest(&byte, 1);
    return take(rest, text);
  }
  bool holds() const { return !held_.empty(); }
  // Appends what is held: the text has ended, or no mark is looked for any more.
  void release(std::string& text);

 private:
  void drop_held();

  std::vector<std::string> marks_;
  StopMatcher matcher_;
  std::string first_bytes_;  // of the marks
  std::string held_;
};

}  // namespace troupe
