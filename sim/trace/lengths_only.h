#pragma once

// Block ids for requests of which a trace has lengths alone, so that what is known of their texts holds:
//
// - A session is a conversation: its prompts are beginnings of one text, and so is each of them with its
//   answer. A prompt shorter than the one before was cut or rewritten: behind the prefix of its set
//   it is another text.
// - Requests of a set begin alike for prefix_length tokens. (A set without that length says nothing: two of
//   its prompts may differ from anywhere on.)
// - Else a prompt is like no other.

#include <cstdint>

#include "common/core/lru_map.h"
#include "common/core/status.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

// Not thread-safe.
class LengthsOnly {
 public:
  // For lines that have none: the workers' own, so that hits are found as finely as they would be live.
  static constexpr int32_t kBlockTokens = 16;
  static constexpr size_t kSessionsMax = 1 << 17;  // remembered, with the length of the last prompt
  LengthsOnly() : talks_(kSessionsMax) {}

  // Refuses blocks so small that a request would have more than these.
  static constexpr int64_t kBlocksMax = 1 << 21;
  static Status check(const TraceRequest& request);

  // Fills blocks and output_blocks. REQUIRES: called in order of time, and check() found nothing.
  void name_blocks(TraceRequest& request);

  struct Counts {
    int64_t requests = 0;
    int64_t of_sessions = 0;  // that continue a session known before
    int64_t of_sets = 0;      // that begin with a set's prefix
    int64_t vague_sets = 0;   // with a set, but no length of its prefix
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Talk {
    int32_t prompt_tokens = 0;  // of the last prompt; 0: there was none
    uint64_t text = 0;          // rises as prompts are rewritten
  };
  uint64_t rest_of(const TraceRequest& request);

  route::LruMap<Talk> talks_;
  Counts counts_;
};

}  // namespace troupe::sim
