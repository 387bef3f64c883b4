#include "gateway/cluster/pin_keeper.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/api/prefix.h"
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

Task<void> PinKeeper::run() {
  Timer timer(parts_.executor);
  while (true) {
    timer.expires_after(kPinTick);
    co_await timer.async_wait(use_task);
    book_.expire(parts_.clock.now());
    kept_.Set(static_cast<double>(book_.size()));
    const auto holds = [this](const route::Pin::Place& place) {
      const bool there =
          parts_.fleet.member(place.node) && parts_.fleet.state(place.node) != NodeState::kDead;
      return there && parts_.router.loads().at(place.node).life == place.life;
    };
    const route::Pin* lost = book_.next_lost(holds);
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
  if (node == route::kNoNode) co_return;  // asked again at the next turn
  const Fleet::Hold hold(parts_.fleet);
  const uint32_t life = parts_.router.loads().at(node).life;
  ClientRequest request;
  request.method = "POST";
  request.target = kPrefixesPath;
  request.headers.emplace_back("content-type", "application/json");
  append_hints(pin.key, parts_.router.at_home(pin.key, pin.model, node), request.headers);
  const Duration left = pin.until - parts_.clock.now();
  const int64_t left_s = std::max<int64_t>(std::chrono::duration_cast<std::chrono::seconds>(left).count(), 1);
  const std::string body = pin.body + (pin.expires ? std::to_string(left_s) : "null") + "}";
  request.body = body;
  const Deadline within = Deadline::after(parts_.clock.now(), kPinWithin);
  const ForwardResult result = co_await ask_once(parts_.fleet.client(node), request, within);
  if (result.end != ForwardResult::End::kAnswered) {
    failed_.Increment();
    parts_.log.debug("pin_not_computed", {{"worker", parts_.fleet.id(node)}, {"status", result.status}});
    co_return;
  }
  computed_.Increment();
  parts_.log.info("pin_computed", {{"worker", parts_.fleet.id(node)}, {"prefix", prefix_id(pin.id)}});
  book_.placed(pin.id, {node, life});
}

}  // namespace troupe
