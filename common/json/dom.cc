// simdjson validates UTF-8, numbers, escapes and structure, but keeps duplicate keys, and its DOM does not
// report where an error is. This file adds limits and a duplicate check (a linear walk over the tape).
//
// Small objects are compared key by key (an API body has ~2 to 20 keys an object; no allocation, no hashing).
// Large ones are sorted, O(n log n), so a million keys cost no more than their sort; a hash set would be
// linear but needs a seed unknown to attackers.

#include "common/json/dom.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kPairwiseKeysMax = 16;
static_assert(kJsonPaddingBytes >= simdjson::SIMDJSON_PADDING);
// Size of buffers kept between parses; larger ones are freed.
constexpr size_t kKeptTextBytes = 1u << 20;

std::string_view explain(simdjson::error_code code) {
  switch (code) {
    case simdjson::EMPTY:
      return "no JSON value";
    case simdjson::UTF8_ERROR:
      return "not valid UTF-8";
    case simdjson::NUMBER_ERROR:
      return "a number is malformed or out of range (integers: 64 bits)";
    case simdjson::STRING_ERROR:
      return "a string holds a bad escape or a lone surrogate";
    case simdjson::UNESCAPED_CHARS:
      return "a string holds a control character that is not escaped";
    case simdjson::UNCLOSED_STRING:
      return "a string does not end";
    case simdjson::T_ATOM_ERROR:
    case simdjson::F_ATOM_ERROR:
    case simdjson::N_ATOM_ERROR:
      return "a literal other than true, false, null";
    case simdjson::MEMALLOC:
      return "no memory to parse it";
    default:
      return "a value, ',' or closing bracket is missing or misplaced";
  }
}

}  // namespace

StrictJson& small_json() {
  thread_local StrictJson json;
  return json;
}

std::string clip_text(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

StatusOr<dom::element> StrictJson::parse(JsonText json, size_t bytes_max) {
  const std::string_view text = json.text();
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes; at most ", bytes_max, " are allowed"));
  }
  if (text.empty()) return invalid_argument("invalid JSON: empty, a value is expected");
  // simdjson's own limit does not count an empty innermost container, so it only guards its stack;
  // check_value() enforces the exact limit.
  const auto want = static_cast<size_t>(depth_max_) + 1;
  if (parser_.max_depth() != want || parser_.capacity() < text.size()) {
    const size_t capacity = std::max(parser_.capacity(), std::max<size_t>(text.size(), 4096));
    if (parser_.allocate(capacity, want)) return absl::ResourceExhaustedError("no memory to parse JSON");
  }
  dom::element root;
  const auto code =
      parser_.parse(text.data(), text.size(), /*realloc_if_needed=*/!json.is_padded()).get(root);
  if (code == simdjson::DEPTH_ERROR) return too_deep(locate_json_error(text, depth_max_));
  if (code) {
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid JSON", to_absl(locate_json_error(text, depth_max_)), ": ", to_absl(explain(code))));
  }
  TROUPE_RETURN_IF_ERROR(check_value(root, Step{nullptr, {}, 0, 1}));
  return root;
}

Status StrictJson::too_deep(std::string_view where) const {
  return absl::InvalidArgumentError(
      absl::StrCat("invalid JSON", to_absl(where), ": nested deeper than ", depth_max_, " levels"));
}

void StrictJson::release_large() {
  if (parser_.capacity() > kKeptTextBytes) parser_ = dom::parser();
  if (keys_.capacity() > kKeptTextBytes / sizeof(std::string_view)) keys_ = {};
}

std::string_view StrictJson::duplicate_key(dom::object object) {
  keys_.clear();
  for (const auto field : object) keys_.push_back(field.key);
  if (keys_.size() <= kPairwiseKeysMax) {
    for (size_t i = 1; i < keys_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (keys_[i] == keys_[j]) return keys_[i];
      }
    }
    return {};
  }
  // Sorted by length first: most comparisons then never touch the text.
  std::sort(keys_.begin(), keys_.end(), [](std::string_view a, std::string_view b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  const auto twin = std::adjacent_find(keys_.begin(), keys_.end());
  return twin == keys_.end() ? std::string_view() : *twin;
}

std::string StrictJson::path_text(const Step* step) {
  if (step == nullptr || step->parent == nullptr) return {};
  std::string path = path_text(step->parent);
  if (step->key.data() == nullptr) {
    absl::StrAppend(&path, "[", step->index, "]");
  } else {
    absl::StrAppend(&path, path.empty() ? "" : ".", clip_text(step->key));
  }
  return path;
}

Status StrictJson::check_object(dom::object object, const Step& step) {
  // An empty key may be the duplicate, so data() means "found", not size(): simdjson's strings are never
  // null.
  if (const std::string_view twin = duplicate_key(object); twin.data() != nullptr) {
    const Step twin_step = {&step, twin, 0, 0};
    return absl::InvalidArgumentError(
        absl::StrCat("invalid JSON: duplicate key '", path_text(&twin_step), "'"));
  }
  for (const auto field : object) {
    if (!field.value.is_object() && !field.value.is_array()) continue;
    TROUPE_RETURN_IF_ERROR(check_value(field.value, Step{&step, field.key, 0, step.depth + 1}));
  }
  return absl::OkStatus();
}

Status StrictJson::check_value(dom::element value, const Step& step) {
  if (!value.is_object() && !value.is_array()) return absl::OkStatus();
  if (step.depth > depth_max_) return too_deep(absl::StrCat(" at '", path_text(&step), "'"));
  if (value.is_object()) return check_object(value.get_object().value_unsafe(), step);
  const dom::array items = value.get_array().value_unsafe();  // named: a range-for would leave it dangling
  size_t index = 0;
  for (const dom::element item : items) {
    if (item.is_object() || item.is_array()) {
      TROUPE_RETURN_IF_ERROR(check_value(item, Step{&step, {}, index, step.depth + 1}));
    }
    ++index;
  }
  return absl::OkStatus();
}

}  // namespace troupe
