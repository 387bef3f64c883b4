#pragma once

// Personas of one gateway, by owner and name, each with its last versions: a PUT of another content is a
// version of its own, and requests that name an older one get it while it is kept. Pure: who keeps them over
// a restart adopts what it reads (cluster/persona_keeper.h). An owner is a tenant or a key, as
// ApiClient::owner() names it; "" is shared by all clients: of a gateway without keys, and of what it reads
// from its folder.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/api/error.h"
#include "common/core/block_hash.h"
#include "common/core/lru_map.h"
#include "gateway/persona/prompt_parts.h"

namespace troupe {

struct PersonaOptions {
  int64_t per_owner = 1000;                // personas
  int64_t versions = 4;                    // kept of each
  int64_t text_bytes = int64_t{64} << 20;  // of all definitions
};

struct PersonaVersion {
  int64_t number = 1;
  int64_t created_s = 0;       // Unix
  std::string definition;      // definition_json()
  std::string prefix_id = {};  // its card's, if a worker was asked to keep it; else empty
  std::shared_ptr<const PersonaPrompt> prompt = nullptr;

  std::string etag() const;  // with its quotes
};

struct Persona {
  std::string owner, name;
  bool from_folder = false;                   // the operator's: no client changes it
  std::vector<PersonaVersion> versions = {};  // by number; the last is what requests get that name none
  size_t bytes() const;
};

// Compiles the versions of a persona that was read back. The error names the field.
ApiResult<bool> compile_versions(Persona& persona);

class PersonaRegistry {
 public:
  using Key = std::pair<std::string, std::string>;  // owner, name

  explicit PersonaRegistry(const PersonaOptions& options) : options_(options) {}
  void change(const PersonaOptions& options) { options_ = options; }

  // The owner's, else the shared one; null: there is none.
  const Persona* find(std::string_view owner, std::string_view name) const;
  const Persona* find_own(std::string_view owner, std::string_view name) const;
  // Finds what a request of this owner gets. The error is a 404 that says which are there.
  struct Chosen {
    const Persona* persona;
    const PersonaVersion* version;
  };
  ApiResult<Chosen> choose(std::string_view owner, const PersonaCall& call) const;
  std::vector<const Persona*> visible_to(std::string_view owner) const;  // by name

  // The persona as it would be with this definition; with the same as its last version it stays as it is.
  // Nothing changes here. The error: over a bound, or it is the operator's.
  struct Change {
    Persona persona;
    bool is_new_version = false;
  };
  ApiResult<Change> propose(std::string_view owner, std::string_view name, PersonaVersion version) const;

  void adopt(Persona persona);
  void erase(std::string_view owner, std::string_view name);
  std::vector<Key> keys() const;
  const Persona* at(const Key& key) const;
  size_t size() const { return personas_.size(); }
  int64_t bytes() const { return bytes_; }

  // Names the persona whose prompts begin so, for operators, who else read a set's hash. Bounded, the last
  // used ones.
  void name_set(const Hash128& set, std::string_view name);
  std::string name_of(const Hash128& set) const;  // empty: none of these

 private:
  PersonaOptions options_;
  std::map<Key, Persona> personas_;
  absl::flat_hash_map<std::string, int64_t> counts_;  // by owner
  int64_t bytes_ = 0;
  route::LruMap<std::string> sets_{4096};
};

}  // namespace troupe
