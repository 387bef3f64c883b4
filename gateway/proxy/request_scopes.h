#pragma once

// Guards: a request gives back what it holds however it ends, also if the client disconnects
// and its coroutine is destroyed.

#include "gateway/proxy/access_gate.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"
#include "gateway/proxy/request_tracing.h"

namespace troupe {

// Names and counts a request: each that is received is in flight, has been answered, or was cancelled.
class RequestScope {
 public:
  RequestScope(ProxyCore& core, Replies& replies, const Exchange& exchange, RequestContext& context)
      : core_(core), hold_(core.fleet), exchange_(exchange), context_(context) {
    context.started = core_.clock.now();
    context.phases.enter(Phase::kAdmit, context.started);
    context.request_id = replies.request_id(exchange.request());
    context.record = core_.observers.begin(exchange, context.started);
    if (context.record.client.empty()) context.record.client = exchange.remote_address();
    core_.running += 1;
    core_.instruments.received.Increment();
    core_.instruments.in_flight.Increment();
  }
  ~RequestScope() {
    core_.running -= 1;
    core_.instruments.in_flight.Decrement();
    const CancelReason reason = context_.cancelled(exchange_);
    if (!context_.answered()) core_.instruments.request_cancelled(reason);
    if (reason == CancelReason::kClientGone) core_.instruments.client_gone.Increment();
    if (context_.timed) {
      const RequestOutcome end =
          reason == CancelReason::kNone ? context_.record.end : RequestOutcome::kCancelled;
      const TimePoint now = core_.clock.now();
      context_.phases.pause(now);
      core_.instruments.request_took(now - context_.started, end);
      core_.instruments.request_computed(context_.phases);
    }
    end_record(core_, exchange_, context_);
  }
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

 private:
  ProxyCore& core_;
  const Fleet::Hold hold_;
  const Exchange& exchange_;
  RequestContext& context_;
};

// Charges a client that disconnects for what was computed for it until then.
class CancelCharge {
 public:
  CancelCharge(const AccessGate& gate, const Exchange& exchange, RequestContext& context)
      : gate_(gate), exchange_(exchange), context_(context) {}
  ~CancelCharge() {
    if (exchange_.cancel_reason() != CancelReason::kNone) gate_.charge_cancelled(exchange_, context_);
  }
  CancelCharge(const CancelCharge&) = delete;
  CancelCharge& operator=(const CancelCharge&) = delete;

 private:
  const AccessGate& gate_;
  const Exchange& exchange_;
  RequestContext& context_;
};

// Hands the attempt's booking back to the router.
class BookingGuard {
 public:
  BookingGuard(ProxyCore& core, RequestContext& context) : core_(core), context_(context) {}
  ~BookingGuard() { context_.flow.abandoned(core_.flow_context(), core_.clock.now()); }
  BookingGuard(const BookingGuard&) = delete;
  BookingGuard& operator=(const BookingGuard&) = delete;

 private:
  ProxyCore& core_;
  RequestContext& context_;
};

}  // namespace troupe
