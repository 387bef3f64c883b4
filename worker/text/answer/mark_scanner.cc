#include "worker/text/answer/mark_scanner.h"

#include <algorithm>

#include "common/core/check.h"

namespace troupe {

MarkScanner::MarkScanner(const std::vector<std::string_view>& marks)
    : marks_(marks.begin(), marks.end()), matcher_(marks_) {
  for (const std::string& mark : marks_) {
    if (first_bytes_.find(mark.front()) == std::string::npos) first_bytes_ += mark.front();
  }
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
    const size_t found = matcher_.push(rest.front());
    rest.remove_prefix(1);
    const size_t kept = found > 0 ? found : matcher_.undecided();
    text.append(held_, 0, held_.size() - kept);
    held_.erase(0, held_.size() - kept);
    if (found == 0) continue;
    const auto mark = std::find(marks_.begin(), marks_.end(), held_);
    TROUPE_CHECK(mark != marks_.end(), "a mark ends here");
    drop_held();
    return static_cast<size_t>(mark - marks_.begin());
  }
  return std::nullopt;
}

void MarkScanner::release(std::string& text) {
  text += held_;
  drop_held();
}

void MarkScanner::drop_held() {
  held_.clear();
  matcher_.go_to(0);
}

}  // namespace troupe
