#include "gateway/persona/fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace troupe {

ApiError persona_field_error(std::string_view name, std::string_view must_be) {
  return ApiError::bad_field(name, absl::StrCat("'", to_absl(name), "' must be ", to_absl(must_be)));
}

std::string PersonaFields::name_of(std::string_view member) const {
  return path.empty() ? std::string(member) : absl::StrCat(path, ".", to_absl(member));
}

const bj::value* PersonaFields::find(std::string_view member) const {
  const bj::value* value = object.if_contains(member);
  return value == nullptr || value->is_null() ? nullptr : value;
}

PersonaFault PersonaFields::read_text(std::string_view member, size_t bytes_max, std::string& out) const {
  const bj::value* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() || value->get_string().size() > bytes_max)
    return persona_field_error(name_of(member), absl::StrCat("a text of at most ", bytes_max, " bytes"));
  out.assign(value->get_string().data(), value->get_string().size());
  return std::nullopt;
}

PersonaFault PersonaFields::read_flag(std::string_view member, bool& out) const {
  const bj::value* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return persona_field_error(name_of(member), "true or false");
  out = value->get_bool();
  return std::nullopt;
}

// (Front ends' files have numbers as 4.0, too.)
PersonaFault PersonaFields::read_count(std::string_view member, int64_t min, int64_t max,
                                       int64_t& out) const {
  const bj::value* value = find(member);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_double() && std::trunc(value->get_double()) == value->get_double();
  const bool fits = value->is_int64() || (whole && std::abs(value->get_double()) < 1e15);
  const int64_t number = !fits               ? 0
                         : value->is_int64() ? value->get_int64()
                                             : static_cast<int64_t>(value->get_double());
  if (!fits || number < min || number > max)
    return persona_field_error(name_of(member), absl::StrCat("a whole number from ", min, " to ", max));
  out = number;
  return std::nullopt;
}

PersonaFault PersonaFields::read_texts(std::string_view member, ListBounds bounds,
                                       std::vector<std::string>& out) const {
  const bj::array* items = nullptr;
  if (auto fault = read_array(member, bounds.items_max, items)) return fault;
  if (items == nullptr) return std::nullopt;
  out.clear();
  for (const bj::value& item : *items) {
    if (!item.is_string() || item.get_string().size() > bounds.bytes_max) {
      return persona_field_error(absl::StrCat(name_of(member), "[", out.size(), "]"),
                                 absl::StrCat("a text of at most ", bounds.bytes_max, " bytes"));
    }
    out.emplace_back(item.get_string().data(), item.get_string().size());
  }
  return std::nullopt;
}

PersonaFault PersonaFields::read_object(std::string_view member, const bj::object*& out) const {
  const bj::value* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return persona_field_error(name_of(member), "an object");
  out = &value->get_object();
  return std::nullopt;
}

PersonaFault PersonaFields::read_array(std::string_view member, size_t items_max,
                                       const bj::array*& out) const {
  const bj::value* value = find(member);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->get_array().size() > items_max)
    return persona_field_error(name_of(member), absl::StrCat("a list of at most ", items_max));
  out = &value->get_array();
  return std::nullopt;
}

}  // namespace troupe
