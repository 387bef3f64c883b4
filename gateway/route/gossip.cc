#include "gateway/route/gossip.h"

#include <absl/container/flat_hash_map.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe::route {
namespace {

constexpr std::string_view kMagic = "TPG1";
constexpr size_t kRecordBytes = 16 + 16 + 8 + 3 * 4;

// Little-endian on every machine this is built for (x86-64 and AArch64).
template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

template <typename T>
T take(std::string_view& in) {
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return value;
}

Hash128 take_hash(std::string_view& in) {
  Hash128 hash;
  hash.hi = take<uint64_t>(in);
  hash.lo = take<uint64_t>(in);
  return hash;
}

}  // namespace

std::string encode_placements(std::span<const Placement> placements, const ClusterView& view) {
  std::string out(kMagic);
  out.reserve(kMagic.size() + placements.size() * kRecordBytes);
  for (const Placement& p : placements) {
    if (p.node >= view.size()) continue;
    put(out, p.set.hi);
    put(out, p.set.lo);
    put(out, p.session.hi);
    put(out, p.session.lo);
    put(out, view.node(p.node).hash.lo);
    put(out, p.set_tokens);
    put(out, p.session_tokens);
    put(out, p.session_charge);
  }
  return out;
}

StatusOr<std::vector<Placement>> decode_placements(std::string_view message, const ClusterView& view) {
  if (!message.starts_with(kMagic))
    return invalid_argument(absl::StrCat("placements: a message begins with ", to_absl(kMagic)));
  message.remove_prefix(kMagic.size());
  if (message.size() % kRecordBytes != 0) {
    return invalid_argument(absl::StrCat("placements: ", message.size(), " bytes of records of ",
                                         kRecordBytes, "; the message is cut off"));
  }
  absl::flat_hash_map<uint64_t, NodeIndex> slots;
  for (NodeIndex n = 0; n < view.size(); ++n) slots.emplace(view.node(n).hash.lo, n);
  std::vector<Placement> placements;
  placements.reserve(message.size() / kRecordBytes);
  while (!message.empty()) {
    Placement p;
    p.set = take_hash(message);
    p.session = take_hash(message);
    const auto slot = slots.find(take<uint64_t>(message));
    p.set_tokens = take<uint32_t>(message);
    p.session_tokens = take<uint32_t>(message);
    p.session_charge = take<uint32_t>(message);
    if (slot == slots.end()) continue;
    p.node = slot->second;
    placements.push_back(p);
  }
  return placements;
}

}  // namespace troupe::route
