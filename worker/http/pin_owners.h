#pragma once

// The owners of a worker's pinned prefixes, by names that gateways send with their requests (kOwnerHeader),
// so that a gateway that begins anew knows the pins and their owners from the workers. They are hashes, from
// which neither key nor tenant can be had, and are listed for gateways alone (kOwnersAskedHeader).
//
// Pure; not thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/core/block_hash.h"

namespace troupe {

class PinOwners {
 public:
  static constexpr size_t kOwnersMax = 16;  // of one prefix; more are not remembered

  // Empty names, and what is no name, are not kept.
  void add(const Hash128& prefix, std::string_view owner);
  // False: others have it pinned still.
  bool remove(const Hash128& prefix, std::string_view owner);
  void forget(const Hash128& prefix) { owners_.erase(prefix); }
  void keep_only(absl::FunctionRef<bool(const Hash128&)> is_pinned);
  const std::vector<std::string>& of(const Hash128& prefix) const;
  // One that has no owner is anybody's, and a request without a name is the operator's own.
  bool may_see(const Hash128& prefix, std::string_view owner) const;

 private:
  absl::flat_hash_map<Hash128, std::vector<std::string>> owners_;
};

}  // namespace troupe
