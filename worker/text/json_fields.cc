#include "worker/text/json_fields.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

Status wrong_kind(std::string_view where, std::string_view expected, const bj::value& value) {
  return invalid_argument(
      absl::StrCat(to_absl(where), ": expected ", to_absl(expected), ", found ", to_absl(json_kind(value))));
}

}  // namespace

StatusOr<JsonItem> json_object(const bj::value& value, std::string where) {
  if (!value.is_object()) return wrong_kind(where, "an object", value);
  return JsonItem{&value.get_object(), std::move(where)};
}

const bj::value* find_field(const JsonItem& item, std::string_view key) {
  const bj::value* value = item.object->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string field_path(const JsonItem& item, std::string_view key) {
  const bool is_file = item.where.empty() || item.where.ends_with(": ");
  return absl::StrCat(item.where, is_file ? "" : ".", to_absl(key));
}

std::string_view json_kind(const bj::value& value) {
  switch (value.kind()) {
    case bj::kind::null:
      return "null";
    case bj::kind::bool_:
      return "a boolean";
    case bj::kind::string:
      return "a string";
    case bj::kind::array:
      return "an array";
    case bj::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

StatusOr<bool> bool_field(const JsonItem& item, std::string_view key, bool fallback) {
  const bj::value* value = find_field(item, key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return wrong_kind(field_path(item, key), "true or false", *value);
  return value->get_bool();
}

StatusOr<std::string> string_field(const JsonItem& item, std::string_view key) {
  const bj::value* value = find_field(item, key);
  if (value == nullptr) return invalid_argument(field_path(item, key) + ": missing");
  if (!value->is_string()) return wrong_kind(field_path(item, key), "a string", *value);
  return std::string(value->get_string());
}

StatusOr<const bj::array*> array_field(const JsonItem& item, std::string_view key) {
  const bj::value* value = find_field(item, key);
  if (value == nullptr) return invalid_argument(field_path(item, key) + ": missing");
  if (!value->is_array()) return wrong_kind(field_path(item, key), "an array", *value);
  return &value->get_array();
}

StatusOr<int32_t> token_id(const bj::value& value, std::string_view where) {
  int64_t id = value.is_int64() ? value.get_int64() : -1;
  if (id < 0 || id >= kTokenIdsMax) {
    return invalid_argument(
        absl::StrCat(to_absl(where), ": expected a token id from 0 to ", kTokenIdsMax - 1, ", found ",
                     value.is_int64() ? absl::StrCat(id) : std::string(json_kind(value))));
  }
  return static_cast<int32_t>(id);
}

StatusOr<std::string> component_type(const JsonItem& item) {
  return string_field(item, "type");
}

Status unsupported_component(const JsonItem& item, std::string_view type, std::string_view supported) {
  return absl::UnimplementedError(absl::StrCat(item.where, ": type \"", to_absl(type),
                                               "\" is not supported (supported: ", to_absl(supported), ")"));
}

}  // namespace troupe
