#pragma once

// Numbers in messages between gateways. Little-endian on every machine this is built for (x86-64 and
// AArch64).

#include <absl/container/flat_hash_map.h>

#include <cstring>
#include <string>
#include <string_view>

#include "common/core/block_hash.h"
#include "gateway/route/fleet/view.h"

namespace troupe::route::wire {

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

inline void put_hash(std::string& out, const Hash128& hash) {
  put(out, hash.hi);
  put(out, hash.lo);
}

// REQUIRES: in.size() >= sizeof(T).
template <typename T>
T take(std::string_view& in) {
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return value;
}

// REQUIRES: in.size() >= 16.
inline Hash128 take_hash(std::string_view& in) {
  Hash128 hash;
  hash.hi = take<uint64_t>(in);
  hash.lo = take<uint64_t>(in);
  return hash;
}

// Nodes travel by the hash of their id: slots are each gateway's own.
inline absl::flat_hash_map<uint64_t, NodeIndex> slots_of(const ClusterView& view) {
  absl::flat_hash_map<uint64_t, NodeIndex> slots;
  for (NodeIndex n = 0; n < view.size(); ++n) slots.emplace(view.node(n).hash.lo, n);
  return slots;
}

}  // namespace troupe::route::wire
