#pragma once

// Forecasts how full the KV memory gets if all running requests go on to their expected ends: each grows by a
// token a step and gives back what it alone holds when it ends, so the sum of the ends is never needed at
// once. Admission has to leave room for the peak over time. Pure; not thread-safe.
//
// The idea of looking at the peak instead of the sum: Gong et al., "Past-Future Scheduler for LLM Serving
// under SLA Guarantees", ASPLOS 2025.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class KvForecast {
 public:
  explicit KvForecast(int32_t block_size) : block_size_(block_size) {}

  struct Request {
    int32_t remaining_count = 1;  // tokens it is expected to go on for, >= 1
    int32_t room_count = 0;       // tokens that its blocks still have room for
    int32_t own_count = 0;        // tokens of room that its end gives back
  };
  // Sets all running requests at once, O(n log n), and adds one more, O(n).
  void reset(std::span<const Request> running);
  void add(const Request& request);
  // Blocks that must be left once `newcomer` has got those of its known tokens, so that until it ends neither
  // it nor another runs out. O(log n).
  int32_t reserve_count(const Request& newcomer) const;

 private:
  // In order of remaining_count. Sums of this one and all after it (they still run when it ends), and of
  // those before it (they ended).
  struct Entry {
    Request request;
    int64_t room_after = 0;
    int64_t own_before = 0;
    int64_t peak = 0;  // the most of demand + one newcomer's growth, over all ends up to this one
  };
  void update();
  int64_t demand_at(int32_t time, size_t index) const;

  int32_t block_size_;
  std::vector<Entry> requests_;
};

}  // namespace troupe
