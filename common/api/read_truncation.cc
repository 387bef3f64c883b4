// Reads `truncation`.

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr std::string_view kRule = "\"auto\", \"disabled\", or an object with one of these as its 'strategy'";
constexpr double kDropMin = 0.05;

std::optional<bool> is_auto(dom::element value) {
  if (!value.is_string()) return std::nullopt;
  const std::string_view name = value.get_string().value_unsafe();
  if (name == "auto") return true;
  if (name == "disabled") return false;
  return std::nullopt;
}

// Refuses a key that is none of its own: what is misspelt would be left out in silence.
Fault read_key(std::string_view param, std::string_view key, dom::element value, Truncation& out) {
  const std::string name = absl::StrCat(to_absl(param), ".", to_absl(key));
  if (key == "strategy") return std::nullopt;
  if (key == "max_prompt_tokens") {
    int64_t count = 0;
    if (auto fault = read_integer(name, value, {.min = 1}, count)) return fault;
    out.max_prompt_tokens = count;
    return std::nullopt;
  }
  if (key == "drop") return read_number(name, value, {kDropMin, 1}, out.drop);
  if (key == "keep_messages") return read_integer(name, value, {.min = 0}, out.keep_messages);
  return ApiError::bad_field(
      name, absl::StrCat("'", name,
                         "' is no key of 'truncation': it has strategy, max_prompt_tokens, drop and "
                         "keep_messages."));
}

}  // namespace

Fault read_truncation(std::string_view param, dom::element value, std::optional<Truncation>& out) {
  if (const auto asked = is_auto(value)) {
    if (*asked) out.emplace();
    return std::nullopt;
  }
  if (!value.is_object()) return expected(param, kRule, value);
  const dom::object fields = value.get_object().value_unsafe();
  dom::element strategy;
  if (fields.at_key("strategy").get(strategy)) return expected(param, kRule, value);
  const auto asked = is_auto(strategy);
  if (!asked)
    return expected(absl::StrCat(to_absl(param), ".strategy"), "\"auto\" or \"disabled\"", strategy);
  Truncation read;
  for (const auto field : fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_key(param, field.key, field.value, read)) return fault;
  }
  if (*asked) out = read;
  return std::nullopt;
}

}  // namespace troupe
