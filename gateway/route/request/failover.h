#pragma once

// The next node after an attempt that failed. The rules of what may be retried at all are retry.h's.
//
// clang-format off
//   before the first byte   down the order that was decided on; at its end, nodes that have joined since
//   a started stream        decided anew, with all that the client has as the prompt: an order of minutes
//                           ago knows nothing of what has happened since. Only workers that can resume it
//   refused for its length  decided anew, for a longer context: one that is known to be longer, else one that
//                           may be. Whose length was known has cost nothing, and is not counted
//   strict                  a set whose homes have all failed gets another one
//   never                   a node that was asked already, or that takes no requests any more
// clang-format on
//
// A stream that one attempt has carried on for RetryOptions::afresh_after is as good as one that has just
// begun: earlier failures count no more, or a long stream would not survive its third worker.

#include <absl/functional/function_ref.h>

#include <optional>
#include <span>
#include <string_view>

#include "gateway/route/request/retry.h"
#include "gateway/route/router.h"

namespace troupe::route {

// After an attempt that failed.
struct FailoverState {
  const PrefixKey& key;
  std::string_view model;
  const Decision& decision;          // by which it was sent
  size_t place = 0;                  // there
  std::span<const NodeIndex> tried;  // the one that failed included
  int length_refusals = 0;           // of tried: those with known contexts, which were too short
  bool started = false;              // the client has some of the answer
  bool resumable = false;            // and another worker of ours can go on exactly there
  int64_t prompt_tokens = 0;         // of the key as it came; 0: unknown
  int64_t tokens_delivered = 0;      // that the client has
  Duration streamed{};               // by the attempt that failed, since its first byte; zero: nothing came
  Duration remaining = Duration::max();
  bool resend = true;  // see AttemptState
};

struct NextAttempt {
  Decision decision;
  size_t place = 0;
  int64_t prompt_tokens = 0;  // with what was told of the answer; 0: as before
  bool afresh = false;        // of those tried, only the last one counts from here on
};

// nullopt: none; what came of the last attempt is the answer. Spends from the budget as decide_retry() does.
// `can_resume`: the worker is one of ours.
std::optional<NextAttempt> next_attempt(const FailoverState& state, const Failure& failure,
                                        absl::FunctionRef<bool(NodeIndex)> can_resume, Router& router,
                                        RetryBudget& budget, TimePoint now);

}  // namespace troupe::route
