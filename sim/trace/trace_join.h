#pragma once

// Joins the lines that several gateways have recorded (or one, in several runs) into one trace:
//
// - Equal beginnings of prompts get equal ids. A gateway has no tokenizer: it learns a message's tokens from
//   the first answer's count and its ids go by that, so two gateways name the same card's blocks differently,
//   and neither knows the other's answers. But of every message a record has a hash of all text up to there:
//   a beginning that was seen keeps the ids and lengths that it had then, and its answer the ids of its
//   blocks.
// - A request that failed and comes again within half a minute, at any gateway, is one request: it came when
//   it came first. Clients of other fleets, where it does not fail, do not ask again.
//
// Lines without message_ids are left as they are.

#include <cstdint>
#include <vector>

#include "common/core/lru_map.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

// Not thread-safe.
class TraceJoin {
 public:
  static constexpr size_t kPlacesMax = 1 << 17;  // messages remembered, each with all before it
  static constexpr size_t kFailedMax = 1 << 16;
  static constexpr Duration kRetryWithin = std::chrono::seconds(30);
  TraceJoin() : places_(kPlacesMax), failed_(kFailedMax) {}

  // REQUIRES: called in order of time, before rename(). True: the request came before, and failed.
  bool is_retry(const TraceRequest& request, const RecordedFacts& facts);
  void rename(TraceRequest& request, const RecordedFacts& facts);

 private:
  struct Place {  // end of a message
    int32_t tokens = 0;
    size_t first_block = 0;
    std::vector<uint64_t> ids;  // of the blocks from there on that end in the message
    int64_t answer_end = 0;     // of the answer to the prompt that ends here; 0: none
    std::vector<uint64_t> answer_ids;
  };
  struct Failed {
    Duration at{};
    int32_t count = 0;
  };
  size_t begin_as_before(const TraceRequest& request, const RecordedFacts& facts);
  void go_on(const TraceRequest& request, const RecordedFacts& facts, size_t first);
  void remember(const TraceRequest& request, const RecordedFacts& facts, size_t first);

  route::LruMap<Place> places_;
  route::LruMap<Failed> failed_;
  // The current line's new ids, and the ends of its messages by them.
  std::vector<uint64_t> ids_;
  std::vector<int32_t> ends_;
};

}  // namespace troupe::sim
