#pragma once

// The owners of a worker's prefixes, by names that gateways send with their requests (kOwnerHeader): those
// for whom a prefix is pinned, and those that had it computed, pinned or not. Others may neither see nor
// remove it. The names are hashes, from which neither key nor tenant can be had. Those of pins are listed for
// gateways alone (kOwnersAskedHeader), so that one that begins anew knows the pins from the workers.
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
  // A prefix remembers so many: of more owners of pins the first ones, of more others the latest.
  static constexpr size_t kOwnersMax = 16;

  // Empty names, and what is no name, are not kept.
  void add(const Hash128& prefix, std::string_view owner);
  // Computed without a pin: it is pinned for no one any more.
  void made(const Hash128& prefix, std::string_view owner);
  enum class Left : uint8_t {
    kNone,    // no other owner
    kMade,    // others had it computed, and none has it pinned
    kPinned,  // others have it pinned
  };
  Left remove(const Hash128& prefix, std::string_view owner);
  void forget(const Hash128& prefix) { owners_.erase(prefix); }
  enum class State : uint8_t { kGone, kMade, kPinned };
  void keep_only(absl::FunctionRef<State(const Hash128&)> state_of);
  // Owners for whom it is pinned.
  const std::vector<std::string>& of(const Hash128& prefix) const;
  // A request without a name is the operator's own, and one with a name sees only what is that name's.
  bool may_see(const Hash128& prefix, std::string_view owner) const;

 private:
  struct Owners {
    std::vector<std::string> pins;
    std::vector<std::string> makers;  // the latest last
  };
  void add_maker(const Hash128& prefix, std::string_view owner);

  absl::flat_hash_map<Hash128, Owners> owners_;
};

}  // namespace troupe
