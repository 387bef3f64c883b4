#include "gateway/cluster/pin_reconciler.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/api/prefix.h"
#include "common/json/json.h"
#include "common/net/timer.h"
#include "gateway/cluster/pin_listing.h"
#include "gateway/upstream/ask_once.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

constexpr auto kPinTick = std::chrono::seconds(1);
constexpr auto kPinWithin = std::chrono::seconds(60);
constexpr auto kListEvery = std::chrono::seconds(30);  // at one worker's list
constexpr auto kListWithin = std::chrono::seconds(3);

}  // namespace

PinReconciler::PinReconciler(const route::PinOptions& options, const Parts& parts)
    : parts_(parts),
      registry_(options),
      kept_(parts.metrics.gauge("troupe_gateway_pins", "Pinned prefixes that this gateway keeps.")),
      computed_(parts.metrics.counter("troupe_gateway_pins_computed_total",
                                      "Pinned prefixes computed anew, for a worker lost them.")),
      failed_(parts.metrics.counter("troupe_gateway_pins_failed_total",
                                    "Tries to compute a pinned prefix anew that failed.")) {}

void PinReconciler::start(TaskGroup& group) {
  group.spawn(run());
  if (importer_ != nullptr) group.spawn(reconcile());
}

void PinReconciler::import_from_workers(bool ownerless) {
  importer_ = std::make_unique<route::PinImporter>(registry_);
  takes_ownerless_ = ownerless;
}

bool PinReconciler::holds(const route::Pin::Place& place) const {
  const bool there = parts_.fleet.member(place.node) && parts_.fleet.state(place.node) != NodeState::kDead;
  return there && parts_.router.loads().at(place.node).incarnation == place.incarnation &&
         parts_.clock.now() < place.ends;
}

// (A gateway that does not know its place among the others sees to all.)
bool PinReconciler::is_ours(const route::Pin& pin) const {
  const route::GatewayShard place = shard && pin.shared ? shard() : route::GatewayShard();
  if (place.of <= 1 || place.index >= place.of) return true;
  return pin.id.lo % static_cast<uint64_t>(place.of) == static_cast<uint64_t>(place.index);
}

route::Pin::Place PinReconciler::place_of(const route::Pin::Claim& claim) const {
  const auto node = parts_.fleet.find(claim.node);
  if (!node || claim.cache_epoch.empty() || parts_.fleet.registered(*node).cache_epoch != claim.cache_epoch)
    return {};
  return {*node, parts_.router.loads().at(*node).incarnation};
}

std::vector<route::Pin::Claim> PinReconciler::claims_of(const route::Pin& pin) const {
  std::vector<route::Pin::Claim> claims = pin.claims;
  for (const route::Pin::Place& place : pin.places) {
    if (holds(place))
      claims.push_back({parts_.fleet.id(place.node), parts_.fleet.registered(place.node).cache_epoch});
  }
  return claims;
}

// The claims of workers that are known are true at once.
void PinReconciler::adopt(route::Pin pin) {
  std::erase_if(pin.claims, [this, &pin](const route::Pin::Claim& claim) {
    const route::Pin::Place place = place_of(claim);
    if (place.node != route::kNoNode) pin.places.push_back(place);
    return place.node != route::kNoNode;
  });
  if (!registry_.adopt(std::move(pin)))
    parts_.log.warn("pin_not_kept", {{"why", "pins.text_bytes are used up"}});
}

// nullopt: its owner's salt is not known.
std::optional<std::string> PinReconciler::body_of(const route::Pin& pin) const {
  std::string body = pin.body;
  if (pin.salted) {
    const auto salt = salt_of ? salt_of(pin.owner) : std::nullopt;
    if (!salt) return std::nullopt;
    append_json_string(body, *salt);
    body += ",\"ttl_s\":";
  }
  const Duration left = pin.until - parts_.clock.now();
  const int64_t left_s = std::max<int64_t>(std::chrono::duration_cast<std::chrono::seconds>(left).count(), 1);
  return body + (pin.expires ? std::to_string(left_s) : "null") + "}";
}

Task<void> PinReconciler::run() {
  Timer timer(parts_.executor);
  while (true) {
    timer.expires_after(kPinTick);
    co_await timer.async_wait(use_task);
    registry_.expire(parts_.clock.now());
    kept_.Set(static_cast<double>(registry_.size()));
    if (!parts_.fleet.probed()) continue;  // nobody knows yet which are lost
    registry_.settle_claims([this](const route::Pin::Claim& claim) { return place_of(claim); });
    const auto held = [this](const route::Pin::Place& place) { return holds(place); };
    const size_t gone = importer_ == nullptr ? 0 : importer_->forget_lost(held);
    if (gone > 0)
      parts_.log.warn("pins_lost", {{"pins", gone}, {"why", "only workers that are gone knew them"}});
    const route::Pin* lost =
        registry_.next_lost(held, [this](const route::Pin& pin) { return is_ours(pin) && !pin.imported; });
    if (lost == nullptr) continue;
    route::Pin pin = *lost;
    co_await compute(std::move(pin));
  }
}

Task<void> PinReconciler::reconcile() {
  Timer timer(parts_.executor);
  while (true) {
    timer.expires_after(kPinTick);
    co_await timer.async_wait(use_task);
    if (!parts_.fleet.probed()) continue;
    listings_.resize(parts_.fleet.size());
    for (NodeIndex node = 0; node < listings_.size(); ++node) {
      if (is_due(node)) co_await reconcile_node(node);
    }
  }
}

bool PinReconciler::is_due(NodeIndex node) const {
  const Fleet& fleet = parts_.fleet;
  if (!fleet.member(node) || !fleet.is_troupe_worker(node) || fleet.known_dead(node)) return false;
  const std::optional<Listing>& last = listings_[node];
  return !last || last->incarnation != parts_.router.loads().at(node).incarnation ||
         parts_.clock.now() >= last->at + kListEvery;
}

Task<void> PinReconciler::reconcile_node(NodeIndex node) {
  const Fleet::Hold hold(parts_.fleet);
  const uint32_t incarnation = parts_.router.loads().at(node).incarnation;
  listings_[node] = Listing{incarnation, parts_.clock.now()};
  ClientRequest request;
  request.target = kPrefixesPath;
  request.headers.emplace_back(kOwnersAskedHeader, "1");
  const Deadline within = Deadline::after(parts_.clock.now(), kListWithin);
  const ForwardResult result =
      co_await ask_once(parts_.fleet.client(node), request, within, kPinListingBytesMax);
  if (result.end != ForwardResult::End::kAnswered ||
      parts_.router.loads().at(node).incarnation != incarnation)
    co_return;
  const auto listed = parse_pin_listing(result.held_body, parts_.clock.now(), takes_ownerless_);
  if (!listed.ok()) {
    parts_.log.warn("pins_not_listed",
                    {{"worker", parts_.fleet.id(node)}, {"why", to_std(listed.status().message())}});
    co_return;
  }
  const std::vector<const route::Pin*> removed = importer_->take({node, incarnation}, *listed);
  for (const route::Pin* pin : removed) co_await remove_at(node, pin->prefix, pin->owner);
}

Task<void> PinReconciler::remove_at(NodeIndex node, Hash128 prefix, std::string owner) {
  ClientRequest request;
  request.method = "DELETE";
  request.target = std::string(kPrefixesPath) + "/" + prefix_id(prefix);
  if (!owner.empty()) request.headers.emplace_back(kOwnerHeader, owner);
  const Deadline within = Deadline::after(parts_.clock.now(), kPinWithin);
  co_await ask_once(parts_.fleet.client(node), request, within);
}

// The first candidate of its requests that is a worker of ours.
NodeIndex PinReconciler::target_of(const route::Pin& pin) {
  const route::Decision decision = parts_.router.preview(pin.key, pin.model, parts_.clock.now());
  for (const route::Candidate& candidate : decision.order.all()) {
    if (parts_.fleet.is_troupe_worker(candidate.node)) return candidate.node;
  }
  return route::kNoNode;
}

Task<void> PinReconciler::compute(route::Pin pin) {
  const NodeIndex node = target_of(pin);
  const auto body = body_of(pin);
  if (node == route::kNoNode || !body) co_return;  // asked again at the next turn
  const Fleet::Hold hold(parts_.fleet);
  const uint32_t incarnation = parts_.router.loads().at(node).incarnation;
  ClientRequest request;
  request.method = "POST";
  request.target = kPrefixesPath;
  request.headers.emplace_back("content-type", "application/json");
  append_hints(pin.key, parts_.router.at_home(pin.key, pin.model, node), request.headers);
  if (!pin.owner.empty()) request.headers.emplace_back(kOwnerHeader, pin.owner);
  request.body = *body;
  const Deadline within = Deadline::after(parts_.clock.now(), kPinWithin);
  const ForwardResult result = co_await ask_once(parts_.fleet.client(node), request, within);
  if (result.end != ForwardResult::End::kAnswered) {
    failed_.Increment();
    parts_.log.debug("pin_not_computed", {{"worker", parts_.fleet.id(node)}, {"status", result.status}});
    co_return;
  }
  computed_.Increment();
  parts_.log.info("pin_computed", {{"worker", parts_.fleet.id(node)}, {"prefix", prefix_id(pin.prefix)}});
  const route::Pin::Place place{node, incarnation, pin.expires ? pin.until : TimePoint::max()};
  registry_.update_expiry(pin.prefix, place);
  if (registry_.placed(pin.id, place)) co_return;
  // It was deleted meanwhile. (Where a store has all pins, the registry knows whether others need it.)
  const std::string owner = importer_ == nullptr ? "" : pin.owner;
  if (owner.empty() && registry_.is_of_another(pin.prefix, pin.owner)) co_return;
  co_await remove_at(node, pin.prefix, owner);
}

}  // namespace troupe
