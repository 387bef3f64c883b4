#include "gateway/cluster/pin_keeper.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/api/prefix.h"
#include "common/json/json.h"
#include "common/net/timer.h"
#include "gateway/upstream/forward.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::NodeIndex;
using route::NodeState;

namespace {

constexpr auto kPinTick = std::chrono::seconds(1);
constexpr auto kPinWithin = std::chrono::seconds(60);

}  // namespace

PinKeeper::PinKeeper(const route::PinOptions& options, const Parts& parts)
    : parts_(parts),
      book_(options),
      kept_(parts.metrics.gauge("troupe_gateway_pins", "Pinned prefixes that this gateway keeps.")),
      computed_(parts.metrics.counter("troupe_gateway_pins_computed_total",
                                      "Pinned prefixes computed anew, for a worker lost them.")),
      failed_(parts.metrics.counter("troupe_gateway_pins_failed_total",
                                    "Tries to compute a pinned prefix anew that failed.")) {}

bool PinKeeper::holds(const route::Pin::Place& place) const {
  const bool there = parts_.fleet.member(place.node) && parts_.fleet.state(place.node) != NodeState::kDead;
  return there && parts_.router.loads().at(place.node).life == place.life && parts_.clock.now() < place.ends;
}

// (A gateway that does not know its place among the others sees to all.)
bool PinKeeper::is_ours(const route::Pin& pin) const {
  const route::GatewayShard place = shard && pin.shared ? shard() : route::GatewayShard();
  if (place.of <= 1 || place.index >= place.of) return true;
  return pin.id.lo % static_cast<uint64_t>(place.of) == static_cast<uint64_t>(place.index);
}

route::Pin::Place PinKeeper::place_of(const route::Pin::Claim& claim) const {
  const auto node = parts_.fleet.find(claim.node);
  if (!node || claim.cache_epoch.empty() || parts_.fleet.registered(*node).cache_epoch != claim.cache_epoch)
    return {};
  return {*node, parts_.router.loads().at(*node).life};
}

std::vector<route::Pin::Claim> PinKeeper::claims_of(const route::Pin& pin) const {
  std::vector<route::Pin::Claim> claims = pin.claims;
  for (const route::Pin::Place& place : pin.places) {
    if (holds(place))
      claims.push_back({parts_.fleet.id(place.node), parts_.fleet.registered(place.node).cache_epoch});
  }
  return claims;
}

// The claims of workers that are known are true at once.
void PinKeeper::adopt(route::Pin pin) {
  std::erase_if(pin.claims, [this, &pin](const route::Pin::Claim& claim) {
    const route::Pin::Place place = place_of(claim);
    if (place.node != route::kNoNode) pin.places.push_back(place);
    return place.node != route::kNoNode;
  });
  if (!book_.adopt(std::move(pin))) parts_.log.warn("pin_not_kept", {{"why", "pins.text_bytes are used up"}});
}

// nullopt: its owner's salt is not known.
std::optional<std::string> PinKeeper::body_of(const route::Pin& pin) const {
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

Task<void> PinKeeper::run() {
  Timer timer(parts_.executor);
  while (true) {
    timer.expires_after(kPinTick);
    co_await timer.async_wait(use_task);
    book_.expire(parts_.clock.now());
    kept_.Set(static_cast<double>(book_.size()));
    if (!parts_.fleet.probed()) continue;  // nobody knows yet which are lost
    book_.settle_claims([this](const route::Pin::Claim& claim) { return place_of(claim); });
    const route::Pin* lost = book_.next_lost([this](const route::Pin::Place& place) { return holds(place); },
                                             [this](const route::Pin& pin) { return is_ours(pin); });
    if (lost == nullptr) continue;
    route::Pin pin = *lost;
    co_await compute(std::move(pin));
  }
}

// The first candidate of its requests that is a worker of ours.
NodeIndex PinKeeper::target_of(const route::Pin& pin) {
  const route::Decision decision = parts_.router.preview(pin.key, pin.model, parts_.clock.now());
  for (const route::Candidate& candidate : decision.order.all()) {
    if (parts_.fleet.ours(candidate.node)) return candidate.node;
  }
  return route::kNoNode;
}

Task<void> PinKeeper::compute(route::Pin pin) {
  const NodeIndex node = target_of(pin);
  const auto body = body_of(pin);
  if (node == route::kNoNode || !body) co_return;  // asked again at the next turn
  const Fleet::Hold hold(parts_.fleet);
  const uint32_t life = parts_.router.loads().at(node).life;
  ClientRequest request;
  request.method = "POST";
  request.target = kPrefixesPath;
  request.headers.emplace_back("content-type", "application/json");
  append_hints(pin.key, parts_.router.at_home(pin.key, pin.model, node), request.headers);
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
  const route::Pin::Place place{node, life, pin.expires ? pin.until : TimePoint::max()};
  book_.told_end(pin.prefix, place);
  if (book_.placed(pin.id, place) || book_.is_of_another(pin.prefix, pin.owner)) co_return;
  // It was deleted meanwhile.
  ClientRequest undo;
  undo.method = "DELETE";
  undo.target = std::string(kPrefixesPath) + "/" + prefix_id(pin.prefix);
  const Deadline soon = Deadline::after(parts_.clock.now(), kPinWithin);
  co_await ask_once(parts_.fleet.client(node), undo, soon);
}

}  // namespace troupe
