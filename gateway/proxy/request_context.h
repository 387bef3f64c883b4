#pragma once

// State of one request; it grows as the phases go. Plain data, one per request, in the frame of
// the coroutine that serves it.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/time.h"
#include "common/net/http_server.h"
#include "gateway/access/api_keys.h"
#include "gateway/access/usage_record.h"
#include "gateway/proxy/accounts.h"
#include "gateway/proxy/admission_queue.h"
#include "gateway/proxy/request_parser.h"
#include "gateway/route/admission/concurrency_limit.h"
#include "gateway/route/placement/pin_registry.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/telemetry/phase_times.h"
#include "gateway/telemetry/request_record.h"
#include "gateway/telemetry/traffic_recorder.h"
#include "gateway/upstream/forward_types.h"
#include "gateway/upstream/resume_filter.h"
#include "gateway/upstream/usage.h"

namespace troupe {

// A place within a concurrency limit, which was entered, until this ends.
class Permit {
 public:
  Permit(route::ConcurrencyLimit& limit, const Clock& clock) : limit_(limit), clock_(clock) {}
  ~Permit() { limit_.leave(clock_.now()); }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;

 private:
  route::ConcurrencyLimit& limit_;
  const Clock& clock_;
};

struct RequestContext {
  // One try at one worker; made anew for each.
  struct WorkerTry {
    UsageTap passed;  // of its answer
    TryProgress progress;
    bool is_troupe_worker = false;  // the worker is one of Troupe's
    bool asks_ids = false;          // it was asked for ids
    std::string resume_body;        // the request's, if the worker continues a stream
    std::string named_body;         // the request's, if the worker has its own name for the model
  };

  // Held while the request is here.
  struct Permits {
    std::optional<Permit> request;        // limits.requests
    std::optional<Permit> text;           // limits.tokenize_requests
    route::PinRegistry::Reservation pin;  // pins.*, of POST /v1/prefixes
  };

  // The account that it concerns, and what it has used.
  struct AccountPart {
    bool asks_model = false;                 // its usage is exported, whatever becomes of it
    std::string end_user;                    // as the request names one; only where that is asked for
    SpentTokens spent;                       // so far: charged, exported, and settled
    std::unique_ptr<Accounts::Visit> visit;  // null: no limits in windows of time concern it
    std::string verdict;                     // moderation's severest; empty: nothing is wrong
    bool cut_short = false;                  // moderation has ended the answer
  };

  TimePoint started;
  std::string request_id;
  Deadline deadline;
  RoutedRequest routed;
  route::RequestFlow flow;                     // decides; a driver performs
  std::unique_ptr<TrafficEntry> entry;         // null: not recorded
  std::shared_ptr<ApiClient> client;           // null: the gateway has no API keys
  std::unique_ptr<ApiKeyLease> api_key_lease;  // likewise
  std::string body;                            // for the worker, if it differs from the client's; else empty
  // For as long as the request is at the workers or waits for them, over all its tries; null: it computes
  // little.
  std::unique_ptr<AdmissionQueue::AdmissionTicket> admission_ticket;
  AccountPart account;
  bool waited = false;  // in the admission queue
  Permits permits;
  Resend resend = Resend::kAsConfigured;
  WorkerTry worker;
  std::optional<ResumeTap> tap;  // of a stream that can be resumed
  TimePoint paused_at{};         // the last event before the failure that a resume mends
  bool timed = false;            // a chat or a completion: its duration is a metric
  RequestRecord record;
  PhaseTimes phases;

  // The request has its answer, whatever becomes of it on its way to the client.
  bool answered() const { return record.status != 0; }
  // Why it ended early. A client that closes once it has the whole answer did not end it.
  CancelReason cancelled(const Exchange& exchange) const {
    return worker.progress.client_done && answered() ? CancelReason::kNone : exchange.cancel_reason();
  }
  std::string_view body_for_worker(const HttpRequest& request) const {
    return body.empty() ? std::string_view(request.body) : std::string_view(body);
  }
};

}  // namespace troupe
