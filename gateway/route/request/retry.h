#pragma once

// May a failed request be sent again, and where? Decided once, here, where the facts are. After its first
// byte went to the client only to go on where the first worker stopped (resume), where that can be told. The
// next place is always the next candidate of the order: the same node is not asked twice, and nobody waits
// for a breaker to open. A budget keeps retries a small share of the traffic, so a fleet in trouble isn't
// asked twice as much as before for long. What is not used of it is saved, enough for all that one node's
// death ends; a gateway that has just begun has saved nothing yet and starts with a few, or else gateways
// that are restarted because all is ill would begin with a thousand retries each. Source of the budget:
// Finagle's RetryBudget.

#include <algorithm>
#include <cstdint>

#include "common/core/time.h"

namespace troupe::route {

enum class FailureKind : uint8_t {
  kConnect,    // no connection: the node never saw the request
  kTransport,  // sent (perhaps in part), then no answer: reset, closed, not HTTP
  kStatus,     // an answer's status says no: see Failure::http_status
  kBody,       // the answer's body broke off
  kSilent,     // no byte for too long, from a node that owes some or is known dead
  kDeadline,   // the request's time is over
  kLocal,      // this gateway itself is short of something (descriptors): no node is to blame
};

struct Failure {
  FailureKind kind = FailureKind::kConnect;
  int http_status = 0;
  bool foreign = false;         // the node is of another kind
  bool client_key = false;      // it was shown the client's own key
  bool any_path = false;        // not every server knows the request's path: a 404 (lacks_path()) is no fault
  Duration retry_after{};       // that it asks for, with its status
  bool too_long = false;        // it says that the request is longer than its context …
  int64_t context_max = 0;      // … which holds so many tokens; 0: it does not say
  bool answered_whole = false;  // a good answer (2xx), but whole, where a stream was asked for
};

// Attempts made for this request so far.
struct AttemptState {
  int attempts = 1;  // made, this failed one included
  int candidates_left = 0;
  bool first_byte_sent = false;  // to the client
  bool resumable = false;        // another node can go on exactly there
  bool resend = true;            // what the node may have begun may be begun anew elsewhere
  Duration remaining = Duration::max();
};

enum class RetryAction : uint8_t {
  kNextCandidate,
  kForward,  // the answer we have is the answer: send it on (an HTTP status), or make the error of the
             // failure
};

struct RetryOptions {
  int attempts_max = 3;
  double budget_ratio = 0.2;  // retries a request earns
  double budget_per_s = 10;   // earned besides, so that little traffic can be retried at all
  double budget_max = 1000;   // and saved up at most
  double budget_start = 32;   // saved up at the start: what ends with one small node's batch
  Duration afresh_after =
      std::chrono::seconds(5);  // a stream that one try carried on for so long: see failover.h
  Duration remaining_min = std::chrono::milliseconds(5);  // less time left than this is not worth a try
};

// Not thread-safe.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options)
      : options_(options), tokens_(std::min(options.budget_start, options.budget_max)) {}
  void earn(TimePoint now);  // a request came
  bool spend(TimePoint now);
  const RetryOptions& options() const { return options_; }
  uint64_t refused() const { return refused_; }  // by spend()
  // Saved retries stay, up to the new maximum.
  void change(const RetryOptions& options) {
    options_ = options;
    tokens_ = std::min(tokens_, options.budget_max);
  }

 private:
  void refill(TimePoint now);
  RetryOptions options_;
  double tokens_;
  uint64_t refused_ = 0;
  TimePoint last_{};
  bool started_ = false;
};

// Statuses worth another node: 429 (it is full; another may not be) and every 5xx (it is ill), but for 501
// (nobody else can do it either), 504: the node has computed until the time was over, and another would
// compute the same for as long, twice the cost for an answer that comes too late again; and 508: the request
// goes round, and each more way round would do so in turn.
bool retryable_status(int http_status);

// A foreign node answered what is its own trouble, of which another knows nothing:
//
//   3xx                    it has moved, or wants a log-in
//   401, 402, 403, 407     its key has changed, or its account is empty
//   404, 405, 410, 501     its model is gone, or it does not know the path
//   408, 421, 425          it has not taken this request from this connection
//   2xx                    it does not stream (answered_whole), and has computed all the same
//   504                    its own proxy has waited for it for long enough. The request's time is over only
//                          when this gateway says so, with no time left to retry in; the node may have begun,
//                          so the retry has its price (may_have_begun())
//
// Ours answer so to what none of them takes, and 504 when the request's time is over.
bool node_specific_rejection(const Failure& failure);

// A status that says that a server does not know the request's path, among other things.
bool lacks_path(int http_status);
// A status by which a node refuses the key that it was shown.
bool refuses_key(int http_status);

// The request is too long for the node, and may not be for one with a longer context. Nobody is to blame.
bool refused_for_length(const Failure& failure);

// The node is to blame, and not for being full: its sets may have to go elsewhere.
bool node_failed(const Failure& failure);

// The node's health counts it. A 503 of a node that passes its probes is load like a 429, and to send it less
// would move its load to others that have as much.
bool affects_health(const Failure& failure);

// The node may have begun to work on the request.
bool may_have_begun(const Failure& failure);

// To our own nodes all may be sent twice: an answer has no effect but itself. Of a foreign one it may have
// its price, or be stored: see AttemptState::resend. Spends from the budget when it says kNextCandidate and
// the node may have begun to work on the request.
RetryAction decide_retry(const Failure& failure, const AttemptState& state, RetryBudget& budget,
                         TimePoint now);

}  // namespace troupe::route
