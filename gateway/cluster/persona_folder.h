#pragma once

// The operator's personas: files of a folder, read once at the start. NAME.yaml and NAME.json have the fields
// of PUT /v1/personas/NAME; a JSON file may be a character card alone. `system` is another word for `card`,
// and `tenant` names its owner; without one all clients share it. Fields that are none of a persona's are the
// operator's own (configs/personas has some).

#include <functional>
#include <optional>
#include <string>

#include "common/core/status.h"
#include "gateway/persona/registry.h"

namespace troupe {

// The owner of a tenant's personas; nullopt: there is no such tenant.
using OwnerOfTenant = std::function<std::optional<std::string>(const std::string& tenant)>;

// Returns how many were adopted. The error names the file and the field.
StatusOr<size_t> read_persona_folder(const std::string& path, const OwnerOfTenant& owner_of,
                                     PersonaRegistry& registry);

}  // namespace troupe
