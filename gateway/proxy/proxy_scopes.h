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
      : proxy_(proxy), hold_(proxy.fleet_), exchange_(exchange), flight_(context) {
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
    if (!flight_.counted) proxy_.instruments_.request_cancelled(exchange_.cancel_reason());
    const CancelReason reason = exchange_.cancel_reason();
    if (reason == CancelReason::kClientGone) proxy_.instruments_.client_gone.Increment();
    if (flight_.timed) {
      const RequestOutcome end = reason == CancelReason::kNone ? flight_.end : RequestOutcome::kCancelled;
      const TimePoint now = proxy_.clock_.now();
      flight_.phases.pause(now);
      proxy_.instruments_.request_took(now - flight_.started, end);
      proxy_.instruments_.request_computed(flight_.phases);
    }
    if (flight_.request_record != nullptr) proxy_.end_record(exchange_, flight_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Proxy& proxy_;
  const Fleet::Hold hold_;
  const Exchange& exchange_;
  RequestContext& flight_;
};

// Whoever goes away is charged for what was computed for him until then.
class Proxy::GoneCharge {
 public:
  GoneCharge(const Proxy& proxy, const Exchange& exchange, const RequestContext& context)
      : proxy_(proxy), exchange_(exchange), flight_(context) {}
  ~GoneCharge() {
    if (exchange_.cancel_reason() != CancelReason::kNone) proxy_.charge_gone(exchange_, flight_);
  }
  GoneCharge(const GoneCharge&) = delete;
  GoneCharge& operator=(const GoneCharge&) = delete;

 private:
  const Proxy& proxy_;
  const Exchange& exchange_;
  const RequestContext& flight_;
};

// What a try has booked at its node: given back also when the client's going away destroys the coroutine.
class Proxy::Booking {
 public:
  Booking(Proxy& proxy, const RoutedRequest& routed, const route::Candidate& candidate)
      : router_(proxy.router_),
        clock_(proxy.clock_),
        key_(routed.key),
        sent_(router_.sent(routed.key, routed.model, candidate, clock_.now(), routed.choices)) {}
  ~Booking() {
    if (!finished_) router_.finished(key_, sent_, std::nullopt, clock_.now());
  }
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;

  void first_byte() { router_.first_byte(key_, sent_, clock_.now()); }
  void finish(const std::optional<route::AnswerCounts>& counts) {
    finished_ = true;
    router_.finished(key_, sent_, counts, clock_.now());
  }
  int64_t expect_cached() const { return sent_.expect_cached; }

 private:
  route::Router& router_;
  const Clock& clock_;
  const route::PrefixKey& key_;
  route::Sent sent_;
  bool finished_ = false;
};

}  // namespace troupe
