#pragma once

// Client-side conversations of a driven trace: a turn that continues the one before (by its block ids) is
// sent as that one's messages, the actual answer, and new words; a turn that repeats the last one is sent as
// it was. So a node's cached conversation, answers included, can be found. A turn that comes before the last
// answer is whole (open loop: clients do not wait) quotes synthetic words in its place.

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
  // Bound of the remembered conversations; the least recently used begins anew.
  static constexpr size_t kSessionsMax = 1 << 14;
  Conversations() : talks_(kSessionsMax) {}

  // The messages of `request`, the `number`th of the trace (from 1).
  std::vector<Message> messages(const TraceRequest& request, uint64_t number);
  void answered(const TraceRequest& request, uint64_t number, std::string text);
  // Turns that quote synthetic words because the answer was not complete.
  int64_t made_up_count() const { return made_up_; }

 private:
  struct Talk {
    uint64_t number = 0;  // of the request sent last; 0: none
    int64_t tokens = 0;   // of its prompt and answer, as in the trace
    int32_t prompt_tokens = 0;
    std::vector<uint64_t> prompt_blocks;  // of its whole prompt
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
