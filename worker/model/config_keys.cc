#include "worker/model/config_keys.h"

#include <boost/json/array.hpp>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr size_t kIdListMax = 1024;
constexpr size_t kShownBytesMax = 80;

std::string shown(const bj::value& value) {
  std::string text = to_json(value);
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax - 3) + "...";
  return text;
}

// The integer that a number is, also one written as 3.0.
std::optional<int64_t> integer_of_json(const bj::value& value) {
  if (value.is_int64()) return value.get_int64();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!value.is_double() || !(std::abs(value.get_double()) <= kExact)) return std::nullopt;
  const double number = value.get_double();
  return number == std::floor(number) ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

}  // namespace

ConfigKeys::ConfigKeys(const bj::object& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

const bj::value* ConfigKeys::find(std::string_view key) const {
  const bj::value* value = object_.if_contains(bj::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigKeys::stated(std::string_view key) const {
  return object_.if_contains(bj::string_view(key.data(), key.size())) != nullptr;
}

Status ConfigKeys::error(std::string_view key, std::string_view reason) const {
  return invalid_argument(absl::StrCat("key '", prefix_, to_absl(key), "': ", to_absl(reason)));
}

Status ConfigKeys::wrong(std::string_view key, const bj::value& value, std::string_view wanted) const {
  return error(key, absl::StrCat(shown(value), " is not supported; must be ", to_absl(wanted)));
}

StatusOr<std::optional<int64_t>> ConfigKeys::integer(std::string_view key, IntRange range) const {
  const bj::value* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number = integer_of_json(*value);
  if (!number || *number < range.min || *number > range.max) {
    return wrong(key, *value, absl::StrCat("an integer in [", range.min, ", ", range.max, "]"));
  }
  return number;
}

StatusOr<int64_t> ConfigKeys::required_integer(std::string_view key, IntRange range) const {
  TROUPE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, integer(key, range));
  if (!value) return error(key, "is missing");
  return *value;
}

StatusOr<std::optional<double>> ConfigKeys::number(std::string_view key, double min, double max) const {
  const bj::value* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const double number = value->is_int64()    ? static_cast<double>(value->get_int64())
                        : value->is_double() ? value->get_double()
                                             : std::nan("");
  if (!(number >= min && number <= max)) {
    return wrong(key, *value, absl::StrCat("a number in [", min, ", ", max, "]"));
  }
  return std::optional<double>(number);
}

StatusOr<std::optional<bool>> ConfigKeys::boolean(std::string_view key) const {
  const bj::value* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) return wrong(key, *value, "true or false");
  return std::optional<bool>(value->get_bool());
}

StatusOr<std::optional<std::string>> ConfigKeys::string(std::string_view key) const {
  const bj::value* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong(key, *value, "a string");
  return std::optional<std::string>(std::string(value->get_string().data(), value->get_string().size()));
}

StatusOr<std::vector<int32_t>> ConfigKeys::token_ids(std::string_view key, int64_t vocab_size,
                                                     std::vector<std::string>& unusable) const {
  std::vector<int32_t> ids;
  const bj::value* value = find(key);
  if (value == nullptr) return ids;
  const bj::array single{*value};
  const bj::array& list = value->is_array() ? value->get_array() : single;
  const std::string wanted = absl::StrCat("a token id in [0, ", vocab_size, ") or a list of them");
  if (list.size() > kIdListMax) return wrong(key, *value, wanted);
  for (const bj::value& item : list) {
    const std::optional<int64_t> id = integer_of_json(item);
    if (id == -1) continue;  // some files write -1 for "none"
    if (id && *id >= 0 && *id < vocab_size) {
      ids.push_back(static_cast<int32_t>(*id));
    } else if (value->is_array()) {  // an id of a larger model of the family never comes
      unusable.push_back(shown(item));
    } else {
      return wrong(key, *value, wanted);
    }
  }
  return ids;
}

}  // namespace troupe
