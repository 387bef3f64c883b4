#pragma once

// Keeps personas over a restart, and for other gateways: in a file (persona_file.h), in etcd
// (persona_store.h), or in memory alone. A change is seen by requests once it is kept.

#include "common/core/status.h"
#include "common/net/task.h"
#include "gateway/persona/registry.h"

namespace troupe {

class PersonaKeeper {
 public:
  virtual ~PersonaKeeper() = default;
  // Has the registry adopt `persona`, or erase it where it has no versions. kAborted: another gateway was
  // first, and the registry has what that one wrote: look again. Other errors: nothing has changed here.
  virtual Task<Status> keep(Persona persona) = 0;
};

// In memory.
class PersonaMemory final : public PersonaKeeper {
 public:
  explicit PersonaMemory(PersonaRegistry& registry) : registry_(registry) {}
  Task<Status> keep(Persona persona) override {
    take(registry_, std::move(persona));
    co_return absl::OkStatus();
  }
  static void take(PersonaRegistry& registry, Persona persona) {
    if (persona.versions.empty()) {
      registry.erase(persona.owner, persona.name);
    } else {
      registry.adopt(std::move(persona));
    }
  }

 private:
  PersonaRegistry& registry_;
};

}  // namespace troupe
