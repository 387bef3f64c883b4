#pragma once

// A persona as it is kept: in etcd under <prefix>/personas/<owner>/<name>, and a line of personas.file.

#include <string>
#include <string_view>

#include "common/core/status.h"
#include "gateway/persona/registry.h"

namespace troupe {

inline constexpr size_t kPersonaRecordBytesMax = 1'400'000;

// Older versions are left out where all of them would be longer than that.
std::string persona_record_json(const Persona& persona);
// With its versions compiled. Unknown fields are ignored. The error names the field.
StatusOr<Persona> parse_persona_record(std::string_view json);

}  // namespace troupe
