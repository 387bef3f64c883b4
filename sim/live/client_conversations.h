#pragma once

// The conversations of a driven trace as their clients keep them: a turn that continues the one before (by
// its block ids) is sent as that one's messages, what was really answered, and new words; a turn that asks
// the same again is sent as it was. So what a node has of a conversation, answers too, can be found cached. A
// turn that comes before its answer is whole (open loop: nobody waits) quotes made-up words in its place.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/lru_map.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

struct Message {
  std::string_view role;
  std::string text;
};

// Not thread-safe.
class Conversations {
 public:
  // Of conversations remembered; the one used longest ago begins anew.
  static constexpr size_t kSessionsMax = 1 << 14;
  Conversations() : talks_(kSessionsMax) {}

  // What to send for `request`, the `number`th of the trace (from 1).
  std::vector<Message> messages(const TraceRequest& request, uint64_t number);
  void answered(const TraceRequest& request, uint64_t number, std::string text);
  // Turns that quote made-up words because the answer was not there yet.
  int64_t made_up_count() const { return made_up_; }

 private:
  struct Talk {
    uint64_t number = 0;  // of the request that was sent last; 0: none
    int64_t tokens = 0;   // of its prompt and answer, by the trace
    int32_t prompt_tokens = 0;
    std::vector<uint64_t> prompt_blocks;  // all of its prompt's
    std::vector<uint64_t> held;           // whole blocks of its prompt and answer
    std::vector<Message> messages;
    std::string answer;
    bool is_answered = false;
  };
  static bool continues(const TraceRequest& request, const Talk& talk);

  route::LruMap<Talk> talks_;
  int64_t made_up_ = 0;
};

}  // namespace troupe::sim
