#include "common/dialects/body.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/dom.h"

namespace troupe::dialect {
namespace {

void append_number(std::string& out, double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  const std::string_view written(text, static_cast<size_t>(end - text));
  out += written;
  if (written.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_value(std::string& out, const bj::value& value) {
  if (const bj::object* object = value.if_object()) {
    char separator = '{';
    for (const auto& field : *object) {
      out += std::exchange(separator, ',');
      append_json_string(out, field.key());
      out += ':';
      append_value(out, field.value());
    }
    out += separator == '{' ? "{}" : "}";
  } else if (const bj::array* array = value.if_array()) {
    char separator = '[';
    for (const bj::value& item : *array) {
      out += std::exchange(separator, ',');
      append_value(out, item);
    }
    out += separator == '[' ? "[]" : "]";
  } else if (value.is_double()) {
    append_number(out, value.get_double());
  } else {
    out += to_json(value);
  }
}

}  // namespace

std::string arguments_json(const bj::object& arguments) {
  std::string out;
  append_value(out, arguments);
  return out;
}

ApiResult<bj::object> read_body(std::string_view body) {
  auto value = parse_json(body);
  if (!value.ok()) return ApiError::bad_field("", to_std(value.status().message()));
  if (!value->is_object()) return ApiError::bad_field("", "The body must be a JSON object.");
  bj::object fields;
  for (auto& field : value->get_object())
    if (!field.value().is_null()) fields.emplace(field.key(), std::move(field.value()));
  return fields;
}

ApiError wrong(std::string_view path, std::string_view rule) {
  return ApiError::bad_field(path, absl::StrCat("'", to_absl(path), "' must be ", to_absl(rule), "."));
}

ApiError required(std::string_view path, std::string_view rule) {
  return ApiError::bad_field(path, absl::StrCat("'", to_absl(path), "' (", to_absl(rule), ") is required."));
}

ApiError unsupported(std::string_view path, std::string_view instead) {
  return ApiError::unsupported(
      path, absl::StrCat("'", to_absl(path), "' is not supported here; ", to_absl(instead), "."));
}

Fault refuse_persona(const bj::object& fields) {
  if (!fields.contains("persona")) return std::nullopt;
  return unsupported("persona", "it is of chats, and tokens are counted without it: leave it out");
}

bj::value take(bj::object& fields, std::string_view name) {
  const auto it = fields.find(name);
  if (it == fields.end()) return nullptr;
  bj::value value = std::move(it->value());
  fields.erase(it);
  return value;
}

Fault take_text(bj::object& fields, std::string_view name, std::optional<std::string>& out) {
  const bj::value value = take(fields, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) return wrong(name, "a string");
  out = std::string(std::string_view(value.get_string()));
  return std::nullopt;
}

Fault take_flag(bj::object& fields, std::string_view name, bool& out) {
  const bj::value value = take(fields, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_bool()) return wrong(name, "true or false");
  out = value.get_bool();
  return std::nullopt;
}

Fault take_object(bj::object& fields, std::string_view name, std::optional<bj::object>& out) {
  bj::value value = take(fields, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_object()) return wrong(name, "an object");
  out = std::move(value.get_object());
  return std::nullopt;
}

Fault take_array(bj::object& fields, std::string_view name, std::optional<bj::array>& out) {
  bj::value value = take(fields, name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_array()) return wrong(name, "an array");
  out = std::move(value.get_array());
  return std::nullopt;
}

void move_member(bj::object& from, std::string_view name, bj::object& to, std::string_view as) {
  bj::value value = take(from, name);
  if (!value.is_null()) to[as] = std::move(value);
}

void add_rest(bj::object fields, bj::object& to) {
  for (auto& field : fields)
    if (!to.contains(field.key())) to.emplace(field.key(), std::move(field.value()));
}

std::string path_of(std::string_view list, size_t index, std::string_view rest) {
  return absl::StrCat(to_absl(list), "[", index, "]", to_absl(rest));
}

}  // namespace troupe::dialect
