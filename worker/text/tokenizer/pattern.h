#pragma once

// The pattern of Split and Replace: tokenizer.json's {"Regex": …} or {"String": …}. Immutable after load.

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
  // Reads the "pattern" of a component. Errors name the field.
  static StatusOr<Pattern> load(const JsonItem& component);

  // Calls `found` for matches from left to right, none overlapping. REQUIRES: valid UTF-8. An error if a
  // regex gives up.
  Status for_each_match(std::string_view text, Regex::Matcher& matcher,
                        const std::function<void(Span)>& found) const;
  // Appends `text` to `out`, with every match replaced by `content`.
  Status replace_all(std::string_view text, std::string_view content, Regex::Matcher& matcher,
                     std::string& out) const;

  // Returns the string; null for a regex.
  const std::string* literal() const { return regex_.has_value() ? nullptr : &literal_; }

 private:
  std::optional<Regex> regex_;
  std::string literal_;  // used if there is no regex
};

}  // namespace troupe
