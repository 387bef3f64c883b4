#pragma once

// How full the KV memory will get if everybody who runs goes on to the expected end: they grow by a token a
// step each, and give back what they alone hold when they end, so the sum of the ends is never needed at
// once. The peak over time is what admission has to leave room for. Pure; not thread-safe.
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
  // Those who run, all at once; then one more. O(n log n) and O(n).
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
