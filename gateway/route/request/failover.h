#pragma once

// A request's way from one worker to the next: who is asked after a try that failed, and when one that says
// nothing has failed. The rules of what may be retried at all are retry.h's.
//
//   before the first byte   down the order that was decided on; at its end whoever has joined since
//   a stream that began     decided anew, with all that the client has as the prompt: the order of minutes
//   ago knows
//                           nothing of what has happened since. Only workers that can go on with it
//   strict                  a set whose homes have all failed is given another one
//   never                   a worker that was asked already, or that takes no requests any more
//
// A stream that has gone on for a while (RetryOptions::afresh_after) is as good as one that has just begun:
// what befell it before counts no more, or a long one would not survive its third worker.

#include <absl/functional/function_ref.h>

#include <optional>
#include <span>
#include <string_view>

#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"

namespace troupe::route {

// After a try that failed.
struct FailoverState {
  const PrefixKey& key;
  std::string_view model;
  const Decision& decision;          // by which it was sent
  size_t place = 0;                  // there
  std::span<const NodeIndex> tried;  // the one that failed included
  bool started = false;              // the client has some of the answer
  bool resumable = false;            // and another worker of ours can go on exactly there
  int64_t tokens_told = 0;
  Duration streamed{};  // by the try that failed, from its first byte to its last; zero: nothing came
  Duration remaining = Duration::max();
  bool resend = true;  // see AttemptState
};

struct NextAttempt {
  Decision decision;
  size_t place = 0;
  int64_t prompt_tokens = 0;  // with what was told of the answer; 0: as before
  bool afresh = false;        // of those tried, only the last one counts from here on
};

// nullopt: nobody; what came of the last try is the answer. Spends from the budget as decide_retry() does.
// `can_resume`: the worker is one of ours.
std::optional<NextAttempt> next_attempt(const FailoverState& state, const Failure& failure,
                                        absl::FunctionRef<bool(NodeIndex)> can_resume, Router& router,
                                        RetryBudget& budget, TimePoint now);

// A try of which nothing has come for as long as is waited: a worker of ours a few heartbeats, another one a
// minute or so (ours tell us that they live; of the others only an answer does).
struct StallCheck {
  bool ours = false;
  bool stream = false;
  bool heartbeats_asked = false;       // heartbeats were asked for,
  bool heartbeats_seen = false;        // have come in this stream,
  bool node_heartbeats = false;        // or in another one of the worker's
  bool suspect = false, dead = false;  // the worker, as its probes have it
  // Not ours: it has begun its answer, and has sent nothing of it for longer than any two tokens are apart.
  bool stalled = false;
};
struct StallVerdict {
  bool hangs = false;      // to be given up for somebody else
  bool blamed = false;     // HealthEvent::kSilent
  bool ask_after = false;  // probe it now
  bool hopeless = false;   // to be given up though there is nobody else
};
StallVerdict check_stall(const StallCheck& silence);

}  // namespace troupe::route
