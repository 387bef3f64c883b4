#include "gateway/cluster/gossip.h"

#include <algorithm>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/redirect_error.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/timer.h"
#include "common/settings/schema.h"
#include "gateway/route/placement/table_codec.h"

namespace troupe {

using route::NodeIndex;
using route::PeerLoad;
using route::Placement;

namespace {

constexpr size_t kTableBytesMax = kGossipBytesMax / 8 * 7;
constexpr size_t kNameDigits = 32;
constexpr const char* kPeerUp = "troupe_gateway_gossip_peer_up";

}  // namespace

struct Gossip::Peer {
  Peer(Executor executor, const Endpoint& endpoint, const HttpClientOptions& options, Gauge& gauge,
       bool found)
      : url(endpoint.url()),
        client(executor, endpoint, options),
        timer(executor),
        up(&gauge),
        was_found(found) {}

  void set_up(bool is) {
    if (up != nullptr) up->Set(is ? 1 : 0);
  }

  std::string url;
  HttpClient client;
  Timer timer;
  Gauge* up;  // null: it has left, and its task is about to end
  const bool was_found;
  // Ends its task.
  const std::shared_ptr<asio::cancellation_signal> stop = std::make_shared<asio::cancellation_signal>();
  bool told = false;  // whether it answers is in the log
  std::vector<Placement> placements;
  absl::flat_hash_map<NodeIndex, PeerLoad> ledger;
  bool self = false;    // this gateway
  Hash128 name;         // as it answered last
  TimePoint sent_at{};  // the last message
  route::TableVersion table_sent;
  TimePoint table_sent_at{};
  uint64_t sample_sent = 0;
  Duration pause{};  // after a failure; zero: it answers
};

Gossip::Gossip(const GossipOptions& options, const Parts& parts)
    : options_(options),
      executor_(parts.executor),
      router_(parts.router),
      metrics_(parts.metrics),
      clock_(parts.clock),
      log_(parts.log),
      name_(parts.router.options().name),
      sent_(parts.metrics.counter("troupe_gateway_gossip_placements_total",
                                  "Placements told between gateways.", {{"direction", "sent"}})),
      received_(parts.metrics.counter("troupe_gateway_gossip_placements_total",
                                      "Placements told between gateways.", {{"direction", "received"}})),
      dropped_(
          parts.metrics.counter("troupe_gateway_gossip_dropped_total",
                                "Placements not told, because a peer did not answer for long or was slow.")),
      refused_(parts.metrics.counter("troupe_gateway_gossip_refused_total",
                                     "Messages and answers without the seal of the fleet's secret.")),
      other_sets_(parts.metrics.gauge("troupe_gateway_gossip_other_sets",
                                      "Gateways heard that divide sets in another way.")) {
  for (const Endpoint& endpoint : options.peers) add_peer(endpoint, false);
}

Gossip::~Gossip() = default;

void Gossip::add_peer(const Endpoint& endpoint, bool was_found) {
  HttpClientOptions client;
  client.tls = options_.tls;
  Gauge& up = metrics_.gauge(kPeerUp, "1 while the other gateway answers.", {{"peer", endpoint.authority()}});
  peers_.push_back(std::make_shared<Peer>(executor_, endpoint, client, up, was_found));
}

void Gossip::start(TaskGroup& group) {
  group_ = &group;
  if (peers_.empty() && !options_.finds) return;
  group.spawn(collect());
  for (const auto& peer : peers_) group.spawn(tell(peer), peer->stop);
}

void Gossip::found(const std::vector<Endpoint>& peers) {
  std::vector<std::shared_ptr<Peer>> gone;
  std::erase_if(peers_, [&](const auto& peer) {
    const auto same = [&](const Endpoint& endpoint) { return endpoint.url() == peer->url; };
    const bool leaves = peer->was_found && std::none_of(peers.begin(), peers.end(), same);
    if (leaves) gone.push_back(peer);
    return leaves;
  });
  for (const std::shared_ptr<Peer>& peer : gone) {
    metrics_.remove(kPeerUp, *std::exchange(peer->up, nullptr));
    log_.info("gossip_peer_left", {{"peer", peer->url}});
    peer->stop->emit(asio::cancellation_type::terminal);
  }
  for (const Endpoint& endpoint : peers) {
    const auto same = [&](const auto& peer) { return peer->url == endpoint.url(); };
    if (peers_.size() >= options_.senders_max || std::any_of(peers_.begin(), peers_.end(), same)) continue;
    add_peer(endpoint, true);
    log_.info("gossip_peer_found", {{"peer", peers_.back()->url}});
    group_->spawn(tell(peers_.back()), peers_.back()->stop);
  }
}

Task<void> Gossip::collect() {
  Timer timer(executor_);
  while (true) {
    timer.expires_after(options_.interval);
    co_await timer.async_wait(use_task);
    take(clock_.now());
    forget_silent(clock_.now());
  }
}

// Hands the router's news on to every peer's queue.
void Gossip::take(TimePoint now) {
  const std::vector<Placement> placements = router_.take_placements();
  std::vector<PeerLoad> ledger;
  const bool all = now >= refreshed_at_ + options_.refresh;
  if (all) refreshed_at_ = now;
  if (options_.ledger) ledger = router_.take_ledger(all);
  for (const auto& peer : peers_) {
    if (peer->self) continue;
    peer->placements.insert(peer->placements.end(), placements.begin(), placements.end());
    drop_oldest(*peer);
    for (const PeerLoad& load : ledger) peer->ledger.insert_or_assign(load.node, load);
  }
}

void Gossip::drop_oldest(Peer& peer) {
  if (peer.placements.size() <= options_.placements_max) return;
  const size_t over = peer.placements.size() - options_.placements_max;
  peer.placements.erase(peer.placements.begin(), peer.placements.begin() + static_cast<std::ptrdiff_t>(over));
  dropped_.Increment(static_cast<double>(over));
}

Task<void> Gossip::tell(std::shared_ptr<Peer> of) {
  Peer& peer = *of;
  while (true) {
    peer.timer.expires_after(std::max(options_.interval, peer.pause));
    boost::system::error_code woken;
    co_await peer.timer.async_wait(asio::redirect_error(use_task, woken));
    const bool probing = peer.pause > Duration::zero() || !peer.told;
    const TimePoint now = clock_.now();
    const bool due = now >= peer.sent_at + options_.refresh || lacks_table(peer, now);
    if (peer.placements.empty() && peer.ledger.empty() && !probing && !due) continue;
    const bool answered = co_await send(peer);
    if (peer.self) {
      leave_out(peer);
      co_return;
    }
    const bool was_up = peer.pause == Duration::zero();
    if (!peer.told || answered != was_up) {
      log_.write(answered ? LogLevel::kInfo : LogLevel::kWarn, "gossip_peer",
                 {{"peer", peer.url}, {"answers", answered}});
      peer.told = true;
    }
    peer.set_up(answered);
    const Duration longer = std::clamp<Duration>(2 * peer.pause, 4 * options_.interval, options_.retry_max);
    peer.pause = answered ? Duration::zero() : longer;
  }
}

// Decided by its last answer; but a table just sent is not sent again before the peer could answer.
bool Gossip::lacks_table(const Peer& peer, TimePoint now) const {
  if (!router_.lacks_table(peer.name)) return false;
  return peer.table_sent != router_.table_version() || now >= peer.table_sent_at + options_.refresh;
}

// A peer was away: of what it missed, nodes that have died since hold nothing any more.
void Gossip::drop_untrue(Peer& peer) {
  const route::ResidencyIndex& placed = router_.known().shadow;
  std::erase_if(peer.placements, [&](const Placement& p) {
    return placed.tokens(p.set, p.node) == 0 && placed.tokens(p.session, p.node) == 0;
  });
}

// All that waits for it, of which the ledger waits no more.
std::string Gossip::message_for(Peer& peer, TimePoint now) {
  std::vector<PeerLoad> loads;
  loads.reserve(peer.ledger.size());
  for (const auto& [node, load] : peer.ledger) loads.push_back(load);
  if (peer.pause > Duration::zero()) drop_untrue(peer);
  const std::string placements = route::encode_placements(peer.placements, router_.view());
  const std::string ledger = route::encode_ledger(loads, router_.view());
  const std::string news = route::encode_news(router_.news());
  peer.ledger.clear();
  peer.sent_at = now;
  std::string sample;
  if (router_.samples() != peer.sample_sent) {
    peer.sample_sent = router_.samples();
    sample = router_.sample_message();
  }
  route::GossipParts parts{placements, ledger, news, {}, sample};
  if (lacks_table(peer, now)) {
    peer.table_sent = router_.table_version();
    peer.table_sent_at = now;
    parts.table = router_.table_message();
    if (parts.table.size() > kTableBytesMax) {
      log_.warn("gossip_table_too_large", {{"peer", peer.url}, {"bytes", parts.table.size()}});
      parts.table = {};
    }
  }
  return route::frame_gossip(parts);
}

// True: the peer took it. Placements that it did not take wait on, before those that came meanwhile; the
// ledger does not, as the next refresh sends its present values.
Task<bool> Gossip::send(Peer& peer) {
  const std::string body = message_for(peer, clock_.now());
  std::vector<Placement> under_way = std::exchange(peer.placements, {});
  const uint64_t replaced = replaced_;
  ClientRequest request;
  request.method = "POST";
  request.target = kGossipPath;
  request.headers.emplace_back(kGossipSenderHeader, name_.hex());
  request.headers.emplace_back("content-type", "application/octet-stream");
  const std::string seal = options_.seal.of_message(name_.hex(), body);
  if (!seal.empty()) request.headers.emplace_back(kGossipAuthHeader, seal);
  request.body = body;
  const Deadline deadline = Deadline::after(clock_.now(), options_.timeout);
  bool taken = false;
  auto answer = co_await peer.client.send(request, deadline);
  if (answer.ok()) {
    constexpr size_t kAnswerBytesMax = 64u << 10;
    const auto read = co_await (*answer)->read_all(kAnswerBytesMax);
    const std::string_view answer_seal = find_header((*answer)->headers(), kGossipAuthHeader);
    taken = read.ok() && (*answer)->status() == 200;
    if (taken && !options_.seal.fits(answer_seal, options_.seal.of_answer(seal, *read))) {
      refused_.Increment();
      taken = false;
    }
    if (taken) hear_answer(peer, *read);
  }
  if (taken) {
    sent_.Increment(static_cast<double>(under_way.size()));
  } else {
    if (replaced != replaced_) under_way.clear();  // slots that they name may be other workers'
    under_way.insert(under_way.end(), peer.placements.begin(), peer.placements.end());
    peer.placements = std::move(under_way);
    peer.sample_sent = 0;
    drop_oldest(peer);
  }
  co_return taken;
}

// A peer with another kind of answer is no gateway of ours, and still gets what it accepts.
void Gossip::hear_answer(Peer& peer, std::string_view answer) {
  const auto name = Hash128::from_hex(answer.substr(0, kNameDigits));
  peer.self = name == name_;
  if (!name || peer.self) return;
  const auto news = route::decode_news(*name, answer.substr(kNameDigits));
  if (!news.ok()) return;
  const bool another = std::exchange(peer.name, *name) != *name;
  heard(*news);
  if (!another || !tells_newcomer(*name)) return;
  // Before what has happened since.
  std::vector<Placement> all = router_.all_placements(options_.placements_max);
  all.insert(all.end(), peer.placements.begin(), peer.placements.end());
  peer.placements = std::move(all);
  drop_oldest(peer);
}

// True: this gateway has the smallest name of those that answer. (An earlier life of the newcomer is silent,
// but may not have been forgotten yet.)
bool Gossip::tells_newcomer(const Hash128& newcomer) const {
  return std::none_of(peers_.begin(), peers_.end(), [&](const auto& peer) {
    const bool answers = !peer->self && peer->pause == Duration::zero() && !peer->name.is_zero();
    return answers && peer->name != newcomer && peer->name < name_;
  });
}

// Called when an unknown gateway speaks: perhaps a peer that did not answer for long.
void Gossip::wake_paused() {
  for (const auto& peer : peers_) {
    if (peer->pause > options_.interval) peer->timer.cancel();
  }
}

// Gateways of one fleet have to divide its sets alike. Where they do not, the operator has to know.
void Gossip::heard(const route::GatewayNews& news) {
  router_.heard(news, clock_.now());
  const route::GatewayNews own = router_.news();
  size_t differing = 0;
  for (const auto& [name, other] : router_.gateways().others())
    differing += other.news.strict_sets != own.strict_sets ? 1 : 0;
  other_sets_.Set(static_cast<double>(differing));
  if (news.name == own.name || news.strict_sets == own.strict_sets) return;
  if (differing_.size() >= options_.senders_max) differing_.clear();
  if (!differing_.insert(news.name).second) return;
  const bool same_kind = route::Gateways::same_kind(own, news);
  log_.warn("gossip_other_sets", {{"gateway", news.name.hex()},
                                  {"strict_sets", news.strict_sets},
                                  {"here", own.strict_sets},
                                  {"counts", same_kind ? "the planner's" : "each for itself"}});
}

// One list of addresses for all gateways contains this one, too. It gets no messages and does not count as a
// gateway that shares the workers.
void Gossip::leave_out(Peer& peer) {
  peer.placements.clear();
  peer.ledger.clear();
  peer.set_up(true);
  const auto others = std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return !p->self; });
  const int64_t gateways = std::max<int64_t>(options_.gateways, others + 1);
  router_.set_gateways(gateways);
  log_.info("gossip_peer_is_self", {{"peer", peer.url}, {"gateways", gateways}});
}

StatusOr<Gossip::Answer> Gossip::receive(const Received& received) {
  const std::string wanted = options_.seal.of_message(received.sender, received.message);
  if (!options_.seal.fits(received.seal, wanted)) {
    refused_.Increment();
    return absl::PermissionDeniedError(
        absl::StrCat(to_absl(kGossipAuthHeader), ": is not of this fleet's secret (gossip.secret)"));
  }
  Answer answer;
  TROUPE_ASSIGN_OR_RETURN(answer.body, take_message(received.sender, received.message));
  answer.seal = options_.seal.of_answer(wanted, answer.body);
  return answer;
}

StatusOr<std::string> Gossip::take_message(std::string_view sender, std::string_view message) {
  const auto name = Hash128::from_hex(sender);
  if (!name) return invalid_argument(absl::StrCat(to_absl(kGossipSenderHeader), ": 32 hex digits"));
  const auto answer = [this] { return name_.hex() + route::encode_news(router_.news()); };
  if (*name == name_) return answer();  // ourselves, in our own list of peers
  TROUPE_ASSIGN_OR_RETURN(const route::GossipParts parts, route::unframe_gossip(message));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<Placement> placements,
                          route::decode_placements(parts.placements, router_.view()));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<PeerLoad> ledger,
                          route::decode_ledger(parts.ledger, router_.view()));
  TROUPE_ASSIGN_OR_RETURN(const route::GatewayNews news, route::decode_news(*name, parts.news));
  if (senders_.size() >= options_.senders_max && !senders_.contains(to_absl(sender))) {
    return absl::ResourceExhaustedError("gossip: more gateways than are followed");
  }
  if (!parts.table.empty()) TROUPE_RETURN_IF_ERROR(router_.adopt_table(parts.table));
  if (!parts.sample.empty()) TROUPE_RETURN_IF_ERROR(router_.adopt_sample(*name, parts.sample, clock_.now()));
  heard(news);
  router_.adopt_placements(placements);
  received_.Increment(static_cast<double>(placements.size()));
  const auto [known, added] = senders_.try_emplace(std::string(sender));
  if (added) known->second.number = sender_count_++;
  if (added) wake_paused();
  known->second.heard_at = clock_.now();
  if (options_.ledger) router_.adopt_ledger(known->second.number, ledger);
  return answer();
}

void Gossip::forget_silent(TimePoint now) {
  absl::erase_if(senders_, [&](const auto& entry) {
    const bool silent = now > entry.second.heard_at + options_.forget_after;
    if (silent) router_.forget_gateway(entry.second.number);
    return silent;
  });
}

void Gossip::forget_node(NodeIndex node) {
  replaced_ += 1;
  for (const auto& peer : peers_) {
    std::erase_if(peer->placements, [node](const Placement& placed) { return placed.node == node; });
    peer->ledger.erase(node);
  }
}

void describe(SettingsSchema& schema, GossipOptions& options) {
  schema.add("gossip.interval_ms", &options.interval, "between two messages to each of them")
      .range(1, 60'000)
      .unit("ms");
  schema.add("gossip.ledger", &options.ledger,
             "tell the other gateways what is in flight, before the workers' reports do");
}

}  // namespace troupe
