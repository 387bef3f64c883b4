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

using route::GatewayAnnouncement;
using route::GossipMessage;
using route::GossipNotes;

namespace {

constexpr size_t kNameDigits = 32;
constexpr const char* kPeerUp = "troupe_gateway_gossip_peer_up";

// The rest of a message is for what is placed and in flight.
static_assert(route::GossipRules().table_bytes_max <= kGossipBytesMax / 8 * 7);

// A peer with another kind of answer is no gateway of ours.
std::optional<GatewayAnnouncement> announcement_of(std::string_view answer) {
  const auto name = Hash128::from_hex(answer.substr(0, kNameDigits));
  if (!name) return std::nullopt;
  const auto announcement = route::decode_announcement(*name, answer.substr(kNameDigits));
  return announcement.ok() ? std::optional(*announcement) : std::nullopt;
}

}  // namespace

struct Gossip::Peer {
  Peer(Executor executor, const Endpoint& endpoint, const HttpClientOptions& options, Gauge& gauge)
      : url(endpoint.url()), client(executor, endpoint, options), timer(executor), up(&gauge) {}

  void set_up(bool is) {
    if (up != nullptr) up->Set(is ? 1 : 0);
  }
  bool left() const { return up == nullptr; }  // its task is about to end

  std::string url;
  HttpClient client;
  Timer timer;
  Gauge* up;
  route::GossipRounds::Peer number = 0;
  bool was_found = false;
  std::string challenge;  // of its life; empty: not known yet
  // Ends its task.
  const std::shared_ptr<asio::cancellation_signal> stop = std::make_shared<asio::cancellation_signal>();
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
                                     "Messages and answers without a fresh seal of the fleet's secret.")),
      other_sets_(parts.metrics.gauge("troupe_gateway_gossip_other_sets",
                                      "Gateways heard that divide sets in another way.")),
      rounds_(options.rules, parts.router),
      freshness_(name_.hex()) {
  for (const Endpoint& endpoint : options.peers) add_peer(endpoint, false);
}

Gossip::~Gossip() = default;

void Gossip::add_peer(const Endpoint& endpoint, bool was_found) {
  HttpClientOptions client;
  client.tls = options_.tls;
  Gauge& up = metrics_.gauge(kPeerUp, "1 while the other gateway answers.", {{"peer", endpoint.authority()}});
  const auto peer = std::make_shared<Peer>(executor_, endpoint, client, up);
  peer->number = peer_count_++;
  peer->was_found = was_found;
  rounds_.add(peer->number, clock_.now());
  peers_.push_back(peer);
}

void Gossip::start(TaskGroup& group) {
  group_ = &group;
  if (peers_.empty() && !options_.finds) return;
  group.spawn(collect());
  for (const auto& peer : peers_) group.spawn(exchange(peer), peer->stop);
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
    rounds_.remove(peer->number);
    metrics_.remove(kPeerUp, *std::exchange(peer->up, nullptr));
    log_.info("gossip_peer_left", {{"peer", peer->url}});
    peer->stop->emit(asio::cancellation_type::terminal);
  }
  for (const Endpoint& endpoint : peers) {
    const auto same = [&](const auto& peer) { return peer->url == endpoint.url(); };
    if (peers_.size() >= options_.rules.senders_max || std::any_of(peers_.begin(), peers_.end(), same))
      continue;
    add_peer(endpoint, true);
    log_.info("gossip_peer_found", {{"peer", peers_.back()->url}});
    group_->spawn(exchange(peers_.back()), peers_.back()->stop);
  }
}

Task<void> Gossip::collect() {
  Timer timer(executor_);
  while (true) {
    timer.expires_after(options_.rules.interval);
    co_await timer.async_wait(use_task);
    rounds_.collect(clock_.now());
    count();
  }
}

Task<void> Gossip::exchange(std::shared_ptr<Peer> with) {
  Peer& peer = *with;
  while (!peer.left()) {
    peer.timer.expires_at(rounds_.next_check(peer.number));
    boost::system::error_code woken;
    co_await peer.timer.async_wait(asio::redirect_error(use_task, woken));
    if (peer.left() || !rounds_.send_due(peer.number, clock_.now())) continue;
    const GossipMessage message = rounds_.begin(peer.number, clock_.now());
    const size_t placements = message.placements.size();
    const std::optional<std::string> answer = co_await send(peer, encode(peer, message));
    if (peer.left()) co_return;
    GossipNotes notes;
    if (answer) {
      sent_.Increment(static_cast<double>(placements));
      const std::optional<GatewayAnnouncement> announcement = announcement_of(*answer);
      notes = rounds_.answered(peer.number, announcement, clock_.now());
      if (notes.other_sets) note_other_sets(*announcement);
    } else {
      notes = rounds_.failed(peer.number, clock_.now());
    }
    note(peer, notes);
    if (notes.is_self) co_return;
  }
}

void Gossip::note(Peer& peer, const GossipNotes& notes) {
  count();
  if (notes.answers) {
    log_.write(*notes.answers ? LogLevel::kInfo : LogLevel::kWarn, "gossip_peer",
               {{"peer", peer.url}, {"answers", *notes.answers}});
  }
  if (notes.is_self)
    log_.info("gossip_peer_is_self", {{"peer", peer.url}, {"gateways", router_.known().gateways}});
  if (notes.answers || notes.is_self) peer.set_up(notes.is_self || *notes.answers);
}

void Gossip::note_other_sets(const GatewayAnnouncement& announcement) {
  const GatewayAnnouncement own = router_.planning().announcement();
  const bool same_kind = route::Gateways::same_kind(own, announcement);
  log_.warn("gossip_other_sets", {{"gateway", announcement.name.hex()},
                                  {"strict_sets", announcement.strict_sets},
                                  {"here", own.strict_sets},
                                  {"counts", same_kind ? "the planner's" : "each for itself"}});
}

void Gossip::count() {
  other_sets_.Set(static_cast<double>(rounds_.other_sets()));
  dropped_.Increment(
      static_cast<double>(rounds_.dropped() - std::exchange(dropped_counted_, rounds_.dropped())));
}

std::string Gossip::encode(const Peer& peer, const GossipMessage& message) const {
  if (message.table_too_large > 0)
    log_.warn("gossip_table_too_large", {{"peer", peer.url}, {"bytes", message.table_too_large}});
  const std::string placements = route::encode_placements(message.placements, router_.view());
  const std::string ledger = route::encode_ledger(message.ledger, router_.view());
  const std::string announcement = route::encode_announcement(message.announcement);
  return route::frame_gossip({placements, ledger, announcement, message.table, message.sample});
}

Task<std::optional<std::string>> Gossip::send(Peer& peer, std::string body) {
  const Deadline deadline = Deadline::after(clock_.now(), options_.timeout);
  std::optional<Reply> reply = co_await post(peer, body, deadline);
  if (reply && reply->status == 409 && options_.seal.is_needed()) {
    peer.challenge = std::move(reply->body);
    reply = co_await post(peer, body, deadline);
  }
  if (!reply || reply->status != 200) co_return std::nullopt;
  co_return std::move(reply->body);
}

Task<std::optional<Gossip::Reply>> Gossip::post(Peer& peer, const std::string& body, Deadline deadline) {
  ClientRequest request;
  request.method = "POST";
  request.target = kGossipPath;
  request.headers.emplace_back(kGossipSenderHeader, name_.hex());
  request.headers.emplace_back("content-type", "application/octet-stream");
  std::string seal;
  if (options_.seal.is_needed()) {
    const std::string stamp = gossip_stamp(peer.challenge, ++sealed_);
    seal = options_.seal.of_message({name_.hex(), stamp, body});
    request.headers.emplace_back(kGossipStampHeader, stamp);
    request.headers.emplace_back(kGossipAuthHeader, seal);
  }
  request.body = body;
  auto answer = co_await peer.client.send(request, deadline);
  if (!answer.ok()) co_return std::nullopt;
  constexpr size_t kAnswerBytesMax = 64u << 10;
  auto read = co_await (*answer)->read_all(kAnswerBytesMax);
  const int status = (*answer)->status();
  if (!read.ok() || (status != 200 && status != 409)) co_return std::nullopt;
  const std::string_view answer_seal = find_header((*answer)->headers(), kGossipAuthHeader);
  if (!options_.seal.fits(answer_seal, options_.seal.of_answer(seal, *read))) {
    refused_.Increment();
    co_return std::nullopt;
  }
  Reply reply;
  reply.status = status;
  reply.body = std::move(*read);
  co_return reply;
}

StatusOr<Gossip::Answer> Gossip::receive(const Received& received) {
  const std::string wanted = options_.seal.of_message({received.sender, received.stamp, received.message});
  if (!options_.seal.fits(received.seal, wanted)) {
    refused_.Increment();
    return absl::PermissionDeniedError(
        absl::StrCat(to_absl(kGossipAuthHeader), ": is not of this fleet's secret (gossip.secret)"));
  }
  const auto sender = Hash128::from_hex(received.sender);
  if (!sender) return invalid_argument(absl::StrCat(to_absl(kGossipSenderHeader), ": 32 hex digits"));
  Answer answer;
  if (options_.seal.is_needed() && !freshness_.take(*sender, received.stamp)) {
    // (A peer that begins has no challenge, and is not counted.)
    if (!received.stamp.starts_with('/')) refused_.Increment();
    answer.is_stale = true;
    answer.body = freshness_.challenge();
  } else {
    TROUPE_ASSIGN_OR_RETURN(answer.body, take_message(*sender, received.message));
  }
  answer.seal = options_.seal.of_answer(wanted, answer.body);
  return answer;
}

StatusOr<std::string> Gossip::take_message(const Hash128& sender, std::string_view message) {
  TROUPE_ASSIGN_OR_RETURN(const route::GossipParts parts, route::unframe_gossip(message));
  TROUPE_ASSIGN_OR_RETURN(const auto placements, route::decode_placements(parts.placements, router_.view()));
  TROUPE_ASSIGN_OR_RETURN(const auto ledger, route::decode_ledger(parts.ledger, router_.view()));
  TROUPE_ASSIGN_OR_RETURN(const GatewayAnnouncement announcement,
                          route::decode_announcement(sender, parts.announcement));
  const GossipMessage decoded{placements, ledger, announcement, parts.table, parts.sample};
  TROUPE_ASSIGN_OR_RETURN(const GossipNotes notes, rounds_.receive(decoded, clock_.now()));
  if (notes.other_sets) note_other_sets(announcement);
  if (sender != name_) received_.Increment(static_cast<double>(placements.size()));
  if (notes.wakes) wake();
  count();
  return name_.hex() + route::encode_announcement(rounds_.answer());
}

void Gossip::wake() {
  const TimePoint now = clock_.now();
  for (const auto& peer : peers_) {
    if (rounds_.next_check(peer->number) <= now) peer->timer.cancel();
  }
}

void describe(SettingsSchema& schema, GossipOptions& options) {
  schema.add("gossip.interval_ms", &options.rules.interval, "between two messages to each of them")
      .range(1, 60'000)
      .unit("ms");
  schema.add("gossip.ledger", &options.rules.ledger,
             "tell the other gateways what is in flight, before the workers' reports do");
}

}  // namespace troupe
