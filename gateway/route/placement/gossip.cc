#include "gateway/route/placement/gossip.h"

#include "absl/strings/str_cat.h"
#include "gateway/route/placement/wire.h"

namespace troupe::route {

using wire::put;
using wire::put_hash;
using wire::slots_of;
using wire::take;
using wire::take_hash;

namespace {

constexpr std::string_view kPlacementsMagic = "TPG1";
constexpr size_t kPlacementBytes = 16 + 16 + 8 + 3 * 4;
constexpr std::string_view kLedgerMagic = "TPL1";
constexpr size_t kLedgerBytes = 3 * 8;

// Returns the records behind the magic; the error says what is malformed.
StatusOr<std::string_view> records_of(std::string_view message, std::string_view magic, size_t record_bytes) {
  if (!message.starts_with(magic))
    return invalid_argument(absl::StrCat("gossip: a message of this kind begins with ", to_absl(magic)));
  message.remove_prefix(magic.size());
  if (message.size() % record_bytes == 0) return message;
  return invalid_argument(absl::StrCat("gossip: ", message.size(), " bytes of records of ", record_bytes,
                                       "; the message is cut off"));
}

}  // namespace

std::string encode_placements(std::span<const Placement> placements, const ClusterView& view) {
  std::string out(kPlacementsMagic);
  out.reserve(kPlacementsMagic.size() + placements.size() * kPlacementBytes);
  for (const Placement& p : placements) {
    if (p.node >= view.size()) continue;
    put_hash(out, p.set);
    put_hash(out, p.session);
    put(out, view.node(p.node).hash.lo);
    put(out, p.set_tokens);
    put(out, p.session_tokens);
    put(out, p.session_charge);
  }
  return out;
}

StatusOr<std::vector<Placement>> decode_placements(std::string_view message, const ClusterView& view) {
  TROUPE_ASSIGN_OR_RETURN(std::string_view records, records_of(message, kPlacementsMagic, kPlacementBytes));
  const auto slots = slots_of(view);
  std::vector<Placement> placements;
  placements.reserve(records.size() / kPlacementBytes);
  while (!records.empty()) {
    Placement p;
    p.set = take_hash(records);
    p.session = take_hash(records);
    const auto slot = slots.find(take<uint64_t>(records));
    p.set_tokens = take<uint32_t>(records);
    p.session_tokens = take<uint32_t>(records);
    p.session_charge = take<uint32_t>(records);
    if (slot == slots.end()) continue;
    p.node = slot->second;
    placements.push_back(p);
  }
  return placements;
}

std::string encode_ledger(std::span<const PeerLoad> loads, const ClusterView& view) {
  std::string out(kLedgerMagic);
  out.reserve(kLedgerMagic.size() + loads.size() * kLedgerBytes);
  for (const PeerLoad& load : loads) {
    if (load.node >= view.size()) continue;
    put(out, view.node(load.node).hash.lo);
    put(out, load.in_flight);
    put(out, load.pending_tokens);
  }
  return out;
}

StatusOr<std::vector<PeerLoad>> decode_ledger(std::string_view message, const ClusterView& view) {
  TROUPE_ASSIGN_OR_RETURN(std::string_view records, records_of(message, kLedgerMagic, kLedgerBytes));
  const auto slots = slots_of(view);
  std::vector<PeerLoad> loads;
  loads.reserve(records.size() / kLedgerBytes);
  while (!records.empty()) {
    const auto slot = slots.find(take<uint64_t>(records));
    PeerLoad load;
    load.in_flight = take<int64_t>(records);
    load.pending_tokens = take<int64_t>(records);
    // Sums of them must stay far from overflow, whatever a peer sends.
    constexpr int64_t kPlausibleMax = int64_t{1} << 40;
    if (load.in_flight < 0 || load.pending_tokens < 0 || load.in_flight > kPlausibleMax ||
        load.pending_tokens > kPlausibleMax) {
      return invalid_argument("gossip: a ledger of numbers that cannot be");
    }
    if (slot == slots.end()) continue;
    load.node = slot->second;
    loads.push_back(load);
  }
  return loads;
}

std::string frame_gossip(const GossipParts& parts) {
  std::string message;
  for (const std::string_view part :
       {parts.placements, parts.ledger, parts.announcement, parts.table, parts.sample}) {
    put(message, static_cast<uint32_t>(part.size()));
    message += part;
  }
  return message;
}

StatusOr<GossipParts> unframe_gossip(std::string_view message) {
  GossipParts parts;
  for (std::string_view* const part :
       {&parts.placements, &parts.ledger, &parts.announcement, &parts.table, &parts.sample}) {
    uint32_t length = 0;
    if (message.size() < sizeof length) return invalid_argument("gossip: the message is cut off");
    length = take<uint32_t>(message);
    if (length > message.size()) return invalid_argument("gossip: the message is cut off");
    *part = message.substr(0, length);
    message.remove_prefix(length);
  }
  if (!message.empty()) return invalid_argument("gossip: more bytes than the message has parts");
  return parts;
}

}  // namespace troupe::route
