#include "worker/text/tokenizer/pattern.h"

namespace troupe {

StatusOr<Pattern> Pattern::load(const JsonItem& component) {
  const bj::value* value = find_field(component, "pattern");
  std::string where = field_path(component, "pattern");
  if (value == nullptr) return invalid_argument(where + ": missing");
  TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(*value, where));
  Pattern pattern;
  if (find_field(fields, "Regex") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(std::string source, string_field(fields, "Regex"));
    StatusOr<Regex> regex = Regex::compile(source);
    if (!regex.ok()) return annotate(regex.status(), where);
    pattern.regex_ = *std::move(regex);
    return pattern;
  }
  if (find_field(fields, "String") == nullptr) {
    return invalid_argument(where + ": expected {\"Regex\": …} or {\"String\": …}");
  }
  TROUPE_ASSIGN_OR_RETURN(pattern.literal_, string_field(fields, "String"));
  if (pattern.literal_.empty()) return invalid_argument(where + ".String: empty");
  return pattern;
}

Status Pattern::for_each_match(std::string_view text, Regex::Matcher& matcher,
                               const std::function<void(Span)>& found) const {
  if (regex_.has_value()) {
    // In the original an empty text has no matches, not even empty ones.
    return text.empty() ? Status() : regex_->for_each_match(text, matcher, found);
  }
  for (size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, at + literal_.size())) {
    found({at, at + literal_.size()});
  }
  return {};
}

Status Pattern::replace_all(std::string_view text, std::string_view content, Regex::Matcher& matcher,
                            std::string& out) const {
  size_t done = 0;
  TROUPE_RETURN_IF_ERROR(for_each_match(text, matcher, [&](Span match) {
    out += text.substr(done, match.begin - done);
    out += content;
    done = match.end;
  }));
  out += text.substr(done);
  return {};
}

}  // namespace troupe
