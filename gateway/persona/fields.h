#pragma once

// Reading of a persona's JSON within bounds, with errors that name the field. Private to gateway/persona.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"
#include "common/json/json.h"

namespace troupe {

using PersonaFault = std::optional<ApiError>;

// An object at a path: its members' names in errors are "path.name".
struct PersonaFields {
  const bj::object& object;
  std::string path;  // empty: the body

  std::string name_of(std::string_view member) const;
  // Null where it is absent or null.
  const bj::value* find(std::string_view member) const;
  // Each leaves `out` as it is where the member is absent or null.
  PersonaFault read_text(std::string_view member, size_t bytes_max, std::string& out) const;
  PersonaFault read_flag(std::string_view member, bool& out) const;
  PersonaFault read_count(std::string_view member, int64_t min, int64_t max, int64_t& out) const;
  struct ListBounds {
    size_t items_max, bytes_max;
  };
  PersonaFault read_texts(std::string_view member, ListBounds bounds, std::vector<std::string>& out) const;
  PersonaFault read_object(std::string_view member, const bj::object*& out) const;
  PersonaFault read_array(std::string_view member, size_t items_max, const bj::array*& out) const;
};

ApiError persona_field_error(std::string_view name, std::string_view must_be);

}  // namespace troupe
