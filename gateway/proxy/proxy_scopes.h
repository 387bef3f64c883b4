#pragma once

// What lives as long as a request, or as one try of it, does; whoever ends it, the client's going away too.
// Private to proxy*.cc.

#include <optional>

#include "gateway/proxy/proxy.h"
#include "gateway/proxy/request_parser.h"

namespace troupe {

inline constexpr int kBrokenStatus = 502;  // of a stream that began with 200, in the record

// A request as long as it lives. It is named and counted: what was received is in flight, has been answered,
// or was cancelled.
class Proxy::Running {
 public:
  Running(Proxy& proxy, const Exchange& exchange, RequestContext& context)
      : proxy_(proxy), hold_(proxy.fleet_), exchange_(exchange), context_(context) {
    context.started = proxy_.clock_.now();
    context.phases.enter(Phase::kAdmit, context.started);
    context.request_id = proxy_.request_id(exchange.request());
    if (proxy_.observers_ != nullptr)
      context.request_record = proxy_.observers_->begin(exchange, context.started);
    proxy_.running_ += 1;
    proxy_.instruments_.received.Increment();
    proxy_.instruments_.in_flight.Increment();
  }
  ~Running() {
    proxy_.running_ -= 1;
    proxy_.instruments_.in_flight.Decrement();
    if (!context_.counted) proxy_.instruments_.request_cancelled(exchange_.cancel_reason());
    const CancelReason reason = exchange_.cancel_reason();
    if (reason == CancelReason::kClientGone) proxy_.instruments_.client_gone.Increment();
    if (context_.timed) {
      const RequestOutcome end = reason == CancelReason::kNone ? context_.end : RequestOutcome::kCancelled;
      const TimePoint now = proxy_.clock_.now();
      context_.phases.pause(now);
      proxy_.instruments_.request_took(now - context_.started, end);
      proxy_.instruments_.request_computed(context_.phases);
    }
    if (context_.request_record != nullptr) proxy_.end_record(exchange_, context_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Proxy& proxy_;
  const Fleet::Hold hold_;
  const Exchange& exchange_;
  RequestContext& context_;
};

// Whoever goes away is charged for what was computed for him until then.
class Proxy::GoneCharge {
 public:
  GoneCharge(const Proxy& proxy, const Exchange& exchange, const RequestContext& context)
      : proxy_(proxy), exchange_(exchange), context_(context) {}
  ~GoneCharge() {
    if (exchange_.cancel_reason() != CancelReason::kNone) proxy_.charge_gone(exchange_, context_);
  }
  GoneCharge(const GoneCharge&) = delete;
  GoneCharge& operator=(const GoneCharge&) = delete;

 private:
  const Proxy& proxy_;
  const Exchange& exchange_;
  const RequestContext& context_;
};

// The fleet, as a RequestFlow sees its nodes.
class Proxy::Signals final : public route::NodeSignals {
 public:
  explicit Signals(Fleet& fleet) : fleet_(fleet) {}
  void on_event(route::NodeIndex node, route::HealthEvent event, TimePoint) override {
    fleet_.on_event(node, event);
  }
  route::NodeStanding standing(route::NodeIndex node) const override {
    return {.ours = fleet_.ours(node),
            .heartbeats = fleet_.heartbeats(node),
            .suspect = fleet_.state(node) == route::NodeState::kSuspect,
            .dead = fleet_.known_dead(node)};
  }
  void saw_heartbeat(route::NodeIndex node) override { fleet_.saw_beat(node); }
  void probe(route::NodeIndex node, TimePoint) override { fleet_.ask_after(node); }

 private:
  Fleet& fleet_;
};

// Hands the attempt's booking back also when the client's going away destroys the coroutine.
class Proxy::BookingGuard {
 public:
  BookingGuard(Proxy& proxy, RequestContext& context) : proxy_(proxy), context_(context) {}
  ~BookingGuard() { context_.flow.abandoned(proxy_.flow_context(), proxy_.clock_.now()); }
  BookingGuard(const BookingGuard&) = delete;
  BookingGuard& operator=(const BookingGuard&) = delete;

 private:
  Proxy& proxy_;
  RequestContext& context_;
};

}  // namespace troupe
