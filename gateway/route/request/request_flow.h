#pragma once

// The way of one request through a gateway, from its key to its end: a state machine. A driver performs each
// Action and reports what came of it as the next event; gateway/proxy does so over sockets, sim/fleet on a
// virtual clock, and neither holds a rule of its own.
//
//   choose() ── kAdmit ──> admitted() ── kSend ──> first_byte() ──> answered()                        kDone
//      │                      │                ├─> silent()     the worker hangs: probe it, or give it up
//      │                      │                ├─> failed() ── kSend (to another), or the end:
//   kRefuse: no candidate  kRefuse             │        kForward…, kEndBroken
//                                              ├─> broken()     the client was told in mid-answer     kDone
//                                              └─> abandoned()  the client has gone                   kDone
//
// failover.h says who is asked next, retry.h what may be sent again, stall.h when silence is a hang. The flow
// books each attempt at the router and hands it back exactly once, reports what the attempt teaches of the
// node's health, and spends from the retry budget.
//
// Sans-io: time is an argument. Nothing is allocated up to four attempts. Not thread-safe. Members that a
// token needs come first, as the simulator has millions of these.

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "gateway/route/admission/admission.h"
#include "gateway/route/fleet/health.h"
#include "gateway/route/request/failover.h"
#include "gateway/route/request/retry.h"
#include "gateway/route/request/stall.h"
#include "gateway/route/router.h"

namespace troupe::route {

// The nodes as a gateway knows them beside its router: health events go in, their status comes out.
class NodeSignals {
 public:
  virtual ~NodeSignals() = default;
  // A node has asked for a pause (Retry-After): until then it is asked last.
  void backoff_until(NodeIndex node, TimePoint until) { backoff_until_[node] = until; }
  bool in_backoff(NodeIndex node, TimePoint now) const {
    const auto found = backoff_until_.find(node);
    return found != backoff_until_.end() && now < found->second;
  }
  bool any_in_backoff() const { return !backoff_until_.empty(); }
  virtual void on_event(NodeIndex node, HealthEvent event, TimePoint now) = 0;
  virtual NodeStatus node_status(NodeIndex node) const = 0;
  virtual void saw_heartbeat(NodeIndex node) = 0;
  virtual void probe(NodeIndex node, TimePoint now) = 0;  // at once, if it has not just been

 private:
  absl::flat_hash_map<NodeIndex, TimePoint> backoff_until_;
};

// One gateway's; they outlive its requests.
struct FlowContext {
  Router& router;
  RetryBudget& budget;
  NodeSignals& nodes;
  const StallOptions& stall;
};

// The answer as the driver knows it when an attempt fails or falls silent.
struct AnswerProgress {
  bool started = false;    // the client has some of it
  bool resumable = false;  // another worker of ours can go on exactly there
  int64_t tokens = 0;      // that the client has, of all attempts
  Duration remaining = Duration::max();
  bool resend = true;  // see AttemptState
};

enum class Action : uint8_t {
  kAdmit,         // ask admission for admission_request(), then admitted()
  kRefuse,        // no node can be asked
  kSend,          // to attempt().candidate; it is booked
  kForward,       // the failed attempt's answer, or the error of its failure, is the answer
  kForwardFull,   // the 429 of an earlier attempt is: "come back later" is truer of a full fleet than "none"
  kForwardWhole,  // the whole answer of the last attempt that brought one is: none has streamed
  kForwardLongest,  // the refusal of the node with the longest context is: longest_refusal()
  kEndBroken,       // report to the client, which has some of the answer, that it ends here
};

class RequestFlow {
 public:
  // One node's. Made anew for each, so that nothing of the one before is left over.
  struct Attempt {
    InFlight sent;
    bool booked = false;    // `sent` is to be handed back
    bool moved_on = false;  // silent() gave it up, and has decided on the next
    TimePoint first_byte_at{};
    Candidate candidate;
    bool resumes = false;  // goes on with a started answer
    StallWatch stall;
  };

  // `key` and `model` must outlive the flow; it writes key.prompt_tokens where a started answer goes on.
  // `answers`: that the request asks for at once (n).
  void begin(PrefixKey& key, std::string_view model, int64_t answers);

  // May be called again until admitted(): what is known of the fleet changes. REQUIRES: begin().
  Action choose(const FlowContext& context, TimePoint now);
  // `waited`: in the queue; what was decided on arrival knows nothing of what has happened since. REQUIRES:
  // choose() said kAdmit.
  Action admitted(const FlowContext& context, bool waited, TimePoint now);
  // An attempt at a node that the caller chooses, beside the order. REQUIRES: begin(), and none is booked.
  void send_to(const FlowContext& context, const Candidate& candidate, bool resumes, TimePoint now);

  // From here to broken() REQUIRES: an attempt was sent.
  // The attempt's first byte for the client. `heartbeats`: its stream has brought some.
  void first_byte(const FlowContext& context, bool heartbeats, TimePoint now);
  // Nothing has come for silence_timeout() since the attempt's last byte or the last call. True: give the
  // attempt up; the driver cuts it off and reports failed() with kSilent.
  struct SilentFacts {
    bool heartbeats_asked = false, heartbeats_seen = false;  // of this attempt's stream
    size_t bytes = 0;                                        // that this attempt has sent so far
    bool began = false;  // some of them are its answer's, though the client may have none yet
  };
  bool silent(const FlowContext& context, const SilentFacts& facts, const AnswerProgress& progress,
              TimePoint now);
  // The attempt failed and the client has not been told. `blame`: false where the client held the worker back
  // for so long that the worker may have broken off for it.
  Action failed(const FlowContext& context, const Failure& failure, bool blame,
                const AnswerProgress& progress, TimePoint now);
  // The client has the whole answer, whatever its status.
  void answered(const FlowContext& context, const std::optional<AnswerCounts>& counts, int status,
                TimePoint now);
  // The answer broke off, and the client was told.
  void broken(const FlowContext& context, const Failure& failure, bool blame, TimePoint now);
  // The client has gone, or the gateway stops. Does nothing where no attempt is booked.
  void abandoned(const FlowContext& context, TimePoint now);
  // The gateway has lost its memory, its bookings too (a simulated restart).
  void forget_booking() { attempt_.booked = false; }

  const Decision& decision() const { return decision_; }
  const Attempt& attempt() const { return attempt_; }
  int attempts() const { return attempts_; }  // all of them; 0: nothing was sent
  // The attempt (from 1) whose answer says that the request is too long for the longest context asked so far;
  // it is kept for kForwardLongest. 0: none.
  int longest_refusal() const { return longest_.attempt; }
  // The candidate of the attempt, or of the answer that is passed on; null: nothing was sent.
  const Candidate* chosen() const { return attempts_ == 0 ? nullptr : &attempt_.candidate; }

 private:
  void learn(const FlowContext& context, const Failure& failure, bool blame, TimePoint now);
  bool move_on(const FlowContext& context, const Failure& failure, const AnswerProgress& progress,
               TimePoint now);
  Action send_next(const FlowContext& context, bool resumes, TimePoint now);
  void learn_length(const FlowContext& context, const Failure& failure);
  std::optional<Action> earlier_answer(const FlowContext& context, const Failure& failure);
  void blame_refusers(const FlowContext& context, TimePoint now);
  void hand_back(const FlowContext& context, const std::optional<AnswerCounts>& counts, TimePoint now);

  Attempt attempt_;
  PrefixKey* key_ = nullptr;
  std::string_view model_;
  int64_t answers_ = 1;
  int64_t prompt_tokens_ = 0;  // of the key as it came; 0: unknown
  int attempts_ = 0;
  absl::InlinedVector<NodeIndex, 4> tried_;  // those that count (failover.h)
  size_t place_ = 0;                         // in decision_.order, of the attempt
  Decision decision_;
  std::optional<Candidate> fallback_;  // the last node that answered 429, or whole where has_whole_
  bool has_whole_ = false;             // a whole answer is kept rather than any 429
  struct LengthRefusal {
    int attempt = 0;
    int64_t context = 0;  // in tokens; 0: not known
    Candidate candidate;
  };
  LengthRefusal longest_;
  int length_refusals_ = 0;  // see FailoverState
  uint64_t refused_ = 0;     // bits, of tried_: who refused what another may take (node_specific_rejection())
};

// A request asks admission for the tokens that its first candidate will have to compute, as far as is known.
struct AdmissionSpec {
  std::string_view pool;  // its model
  AdmissionKey key;
  int32_t priority = 0;
  int64_t answers = 1;
  std::optional<int64_t> answer_tokens_max;
  TimePoint deadline{};
};
AdmissionRequest admission_request(const Router& router, const PrefixKey& key, const Decision& decision,
                                   const AdmissionSpec& spec);
// The tokens of a counted answer that admission counts: computed ones.
inline int64_t admission_cost(const AnswerCounts& counts) {
  return counts.prompt_tokens - counts.cached_tokens + counts.completion_tokens;
}

// The health event that a failure is for its node; nullopt: none.
std::optional<HealthEvent> health_event_of(const Failure& failure, bool blame);

}  // namespace troupe::route
