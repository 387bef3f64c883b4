#include "gateway/route/gossip_rounds.h"

#include <algorithm>
#include <utility>

#include "common/core/check.h"

namespace troupe::route {

namespace {

template <typename Peers>
auto& at(Peers& peers, GossipRounds::Peer peer) {
  const auto found = peers.find(peer);
  TROUPE_CHECK(found != peers.end(), "the peer was never added, or is removed");
  return found->second;
}

}  // namespace

GossipRounds::GossipRounds(const GossipRules& rules, Router& router) : rules_(rules), router_(router) {
  TROUPE_CHECK(rules.interval > Duration::zero(), "rounds without an interval never wait");
}

void GossipRounds::add(Peer peer, TimePoint now) {
  const auto [added, is_new] = peers_.try_emplace(peer);
  TROUPE_CHECK(is_new, "the number of a peer is in use");
  added->second.next_check = now + rules_.interval;
}

void GossipRounds::remove(Peer peer) {
  const size_t removed = peers_.erase(peer);
  TROUPE_CHECK(removed == 1, "the peer was never added, or is removed");
}

TimePoint GossipRounds::next_check(Peer peer) const {
  return at(peers_, peer).next_check;
}

void GossipRounds::collect(TimePoint now) {
  const std::vector<Placement> placements = router_.placements().take();
  std::vector<PeerLoad> ledger;
  const bool all = now >= refreshed_at_ + rules_.refresh;
  if (all) refreshed_at_ = now;
  if (rules_.ledger) ledger = router_.export_peer_loads(all);
  for (auto& [number, peer] : peers_) {
    if (peer.self) continue;
    peer.placements.insert(peer.placements.end(), placements.begin(), placements.end());
    drop_oldest(peer);
    for (const PeerLoad& load : ledger) peer.ledger.insert_or_assign(load.node, load);
  }
  forget_silent(now);
}

void GossipRounds::drop_oldest(PeerState& peer) {
  if (peer.placements.size() <= rules_.placements_max) return;
  const size_t over = peer.placements.size() - rules_.placements_max;
  peer.placements.erase(peer.placements.begin(), peer.placements.begin() + static_cast<std::ptrdiff_t>(over));
  dropped_ += over;
}

bool GossipRounds::send_due(Peer number, TimePoint now) {
  PeerState& peer = at(peers_, number);
  TROUPE_CHECK(!peer.under_way, "one message to a peer at a time");
  if (peer.self) return false;
  peer.next_check = now + std::max(rules_.interval, peer.pause);
  if (!peer.placements.empty() || !peer.ledger.empty()) return true;
  const bool probes = peer.pause > Duration::zero() || !peer.tried || peer.hello_due;
  return probes || now >= peer.sent_at + rules_.refresh || has_stale_table(peer, now);
}

// Decided by its last announcement; but a table just sent is not sent again before the peer could answer.
bool GossipRounds::has_stale_table(const PeerState& peer, TimePoint now) const {
  if (!router_.planning().has_stale_table(peer.name)) return false;
  return peer.table_sent != router_.planning().version() || now >= peer.table_sent_at + rules_.refresh;
}

// The peer was away: of what it missed, nodes that have died since hold nothing any more.
void GossipRounds::drop_dead_nodes(PeerState& peer) const {
  const ResidencyIndex& placed = router_.known().shadow;
  std::erase_if(peer.placements, [&](const Placement& p) {
    return placed.tokens(p.set, p.node) == 0 && placed.tokens(p.session, p.node) == 0;
  });
}

GossipMessage GossipRounds::begin(Peer number, TimePoint now) {
  PeerState& peer = at(peers_, number);
  TROUPE_CHECK(!peer.under_way, "one message to a peer at a time");
  peer.under_way = true;
  peer.hello_due = false;
  peer.sent_at = now;
  if (peer.pause > Duration::zero()) drop_dead_nodes(peer);
  peer.placements_sent = std::exchange(peer.placements, {});
  peer.ledger_sent.clear();
  for (const auto& [node, load] : peer.ledger) peer.ledger_sent.push_back(load);
  peer.ledger.clear();
  peer.sample.clear();
  if (router_.planning().own().number() != peer.sample_sent) {
    peer.sample_sent = router_.planning().own().number();
    peer.sample = router_.planning().own().message();
  }
  GossipMessage message;
  message.placements = peer.placements_sent;
  message.ledger = peer.ledger_sent;
  message.announcement = router_.planning().announcement();
  message.sample = peer.sample;
  if (has_stale_table(peer, now)) put_table(peer, now, message);
  return message;
}

void GossipRounds::put_table(PeerState& peer, TimePoint now, GossipMessage& message) {
  peer.table_sent = router_.planning().version();
  peer.table_sent_at = now;
  const std::string& table = router_.planning().table_message();
  if (table.size() <= rules_.table_bytes_max) {
    message.table = table;
  } else {
    message.table_too_large = table.size();
  }
}

GossipNotes GossipRounds::end(PeerState& peer, bool answers, TimePoint now) {
  TROUPE_CHECK(peer.under_way, "the outcome of a message that was not sent");
  peer.under_way = false;
  GossipNotes notes;
  const bool answered_before = peer.pause == Duration::zero();
  if (!std::exchange(peer.tried, true) || answers != answered_before) notes.answers = answers;
  const Duration longer =
      std::clamp<Duration>(2 * peer.pause, std::min(4 * rules_.interval, rules_.retry_max), rules_.retry_max);
  peer.pause = answers ? Duration::zero() : longer;
  peer.next_check = now + std::max(rules_.interval, peer.pause);
  return notes;
}

GossipNotes GossipRounds::answered(Peer number, const std::optional<GatewayAnnouncement>& by, TimePoint now) {
  PeerState& peer = at(peers_, number);
  GossipNotes notes = end(peer, true, now);
  peer.placements_sent.clear();
  if (!by) return notes;
  if (by->name == router_.options().name) {
    leave_out(peer);
    return {.answers = {}, .is_self = true};
  }
  const bool another = std::exchange(peer.name, by->name) != by->name;
  notes.other_sets = observe(*by, now);
  if (another && owes_full_sync(by->name)) queue_full_sync(peer);
  return notes;
}

// Placements that the peer did not take wait on, before those that came meanwhile.
GossipNotes GossipRounds::failed(Peer number, TimePoint now) {
  PeerState& peer = at(peers_, number);
  const GossipNotes notes = end(peer, false, now);
  std::vector<Placement> waiting = std::exchange(peer.placements_sent, {});
  waiting.insert(waiting.end(), peer.placements.begin(), peer.placements.end());
  peer.placements = std::move(waiting);
  peer.sample_sent = 0;
  drop_oldest(peer);
  return notes;
}

// True: this gateway has the smallest name of those that answer. (An earlier life of the newcomer is silent,
// but may not have been forgotten yet.)
bool GossipRounds::owes_full_sync(const Hash128& newcomer) const {
  return std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const PeerState& peer = entry.second;
    const bool answers = !peer.self && peer.pause == Duration::zero() && !peer.name.is_zero();
    return answers && peer.name != newcomer && peer.name < router_.options().name;
  });
}

// All that is known goes before what has happened since.
void GossipRounds::queue_full_sync(PeerState& peer) {
  std::vector<Placement> all = router_.placements().all(rules_.placements_max);
  all.insert(all.end(), peer.placements.begin(), peer.placements.end());
  peer.placements = std::move(all);
  drop_oldest(peer);
}

// One list of addresses for all gateways contains this one, too. It gets no messages and does not count as a
// gateway that shares the workers.
void GossipRounds::leave_out(PeerState& peer) {
  peer.self = true;
  peer.placements.clear();
  peer.ledger.clear();
  const auto others =
      std::count_if(peers_.begin(), peers_.end(), [](const auto& entry) { return !entry.second.self; });
  router_.set_gateways(std::max<int64_t>(rules_.gateways, others + 1));
}

// Gateways of one fleet have to divide its sets alike. Where they do not, the operator has to know: true for
// the first announcement of each that does not.
bool GossipRounds::observe(const GatewayAnnouncement& announcement, TimePoint now) {
  router_.planning().observe(announcement, now);
  const GatewayAnnouncement own = router_.planning().announcement();
  if (announcement.name == own.name || announcement.strict_sets == own.strict_sets) return false;
  if (differing_.size() >= rules_.senders_max) differing_.clear();
  return differing_.insert(announcement.name).second;
}

size_t GossipRounds::other_sets() const {
  const uint32_t own = router_.planning().announcement().strict_sets;
  const auto& others = router_.planning().gateways().others();
  const auto differs = [own](const auto& entry) { return entry.second.announcement.strict_sets != own; };
  return static_cast<size_t>(std::count_if(others.begin(), others.end(), differs));
}

StatusOr<GossipNotes> GossipRounds::receive(const GossipMessage& message, TimePoint now) {
  const Hash128& name = message.announcement.name;
  if (name == router_.options().name) return GossipNotes{};  // its own, by its own list of peers
  if (senders_.size() >= rules_.senders_max && !senders_.contains(name))
    return absl::ResourceExhaustedError("gossip: more gateways than are followed");
  if (!message.table.empty()) TROUPE_RETURN_IF_ERROR(router_.planning().adopt_table(message.table));
  if (!message.sample.empty())
    TROUPE_RETURN_IF_ERROR(router_.planning().adopt_sample(name, message.sample, now));
  GossipNotes notes;
  notes.other_sets = observe(message.announcement, now);
  router_.placements().adopt(message.placements);
  const auto [known, added] = senders_.try_emplace(name);
  if (added) known->second.number = sender_count_++;
  known->second.received_at = now;
  if (rules_.ledger) router_.apply_peer_loads(known->second.number, message.ledger);
  if (!added) return notes;
  queue_hellos(name, now);
  notes.wakes = true;
  return notes;
}

// A sender has begun, or is back: a peer whose name it is, or any of them, gets a message at once, whose
// answer shows who it is.
void GossipRounds::queue_hellos(const Hash128& sender, TimePoint now) {
  const bool known = std::any_of(peers_.begin(), peers_.end(),
                                 [&](const auto& entry) { return entry.second.name == sender; });
  for (auto& [number, peer] : peers_) {
    if (known && peer.name != sender) continue;
    peer.hello_due = true;
    peer.next_check = std::min(peer.next_check, now);
  }
}

void GossipRounds::forget_silent(TimePoint now) {
  std::erase_if(senders_, [&](const auto& entry) {
    const bool silent = now > entry.second.received_at + rules_.forget_after;
    if (silent) router_.forget_gateway(entry.second.number);
    return silent;
  });
}

void GossipRounds::forget_node(NodeIndex node) {
  const auto is_there = [node](const Placement& placed) { return placed.node == node; };
  for (auto& [number, peer] : peers_) {
    std::erase_if(peer.placements, is_there);
    std::erase_if(peer.placements_sent, is_there);
    peer.ledger.erase(node);
  }
}

}  // namespace troupe::route
