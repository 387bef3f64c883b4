#pragma once

// What Split and Replace look for: tokenizer.json's {"Regex": …} or {"String": …}. Immutable after load.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/regex.h"

namespace troupe {

class Pattern {
 public:
  // The "pattern" of a component. Errors name the field.
  static StatusOr<Pattern> load(const JsonItem& component);

  // Matches from left to right, none overlapping. REQUIRES: valid UTF-8. An error where a regex gives up.
  Status for_each_match(std::string_view text, Regex::Matcher& matcher,
                        const std::function<void(Span)>& found) const;
  // Appends `text` to `out`, every match replaced by `content`.
  Status replace_all(std::string_view text, std::string_view content, Regex::Matcher& matcher,
                     std::string& out) const;

  // The string it looks for, or null where it is a regex.
  const std::string* literal() const { return regex_.has_value() ? nullptr : &literal_; }

 private:
  std::optional<Regex> regex_;
  std::string literal_;  // counts where there is no regex
};

}  // namespace troupe
