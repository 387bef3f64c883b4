#include "worker/text/answer/mark_scanner.h"

#include <algorithm>
#include <utility>

namespace troupe {

MarkScanner::MarkScanner(std::vector<std::string_view> marks) : marks_(std::move(marks)) {
  for (const std::string_view mark : marks_) {
    if (first_bytes_.find(mark.front()) == std::string::npos) first_bytes_ += mark.front();
  }
}

std::optional<size_t> MarkScanner::mark_held() const {
  const auto mark = std::find(marks_.begin(), marks_.end(), held_);
  if (mark == marks_.end()) return std::nullopt;
  return static_cast<size_t>(mark - marks_.begin());
}

bool MarkScanner::begins_mark() const {
  return std::any_of(marks_.begin(), marks_.end(),
                     [this](std::string_view mark) { return mark.starts_with(held_); });
}

std::optional<size_t> MarkScanner::take(std::string_view& rest, std::string& text) {
  while (!rest.empty()) {
    if (held_.empty()) {
      const size_t plain = std::min(rest.find_first_of(first_bytes_), rest.size());
      text += rest.substr(0, plain);
      rest.remove_prefix(plain);
      if (rest.empty()) break;
    }
    held_ += rest.front();
    rest.remove_prefix(1);
    if (const auto mark = mark_held()) {
      held_.clear();
      return mark;
    }
    // The longest end of what is held that may begin a mark stays.
    while (!held_.empty() && !begins_mark()) {
      text += held_.front();
      held_.erase(0, 1);
    }
  }
  return std::nullopt;
}

void MarkScanner::release(std::string& text) {
  text += held_;
  held_.clear();
}

}  // namespace troupe
