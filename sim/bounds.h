#pragma once

// What no router can beat: the share of prompt tokens that one cache would have had. `infinite` forgets
// nothing; `pooled LRU` is all nodes' KV memory in one piece, least recently used out first, never its own
// prefix before what hangs on it. Where KV memory is the limit (persona chat: the tails of live sessions
// dwarf the personas) only the second means anything. Requests are taken as served at once, one after the
// other.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/trace.h"

namespace troupe::sim {

class PooledLru {
 public:
  // `capacity_tokens` < 0: without a bound.
  explicit PooledLru(int64_t capacity_tokens) : capacity_tokens_(capacity_tokens) {}
  // Prompt tokens found by each of the two.
  struct Hits {
    int64_t pooled = 0, infinite = 0;
  };
  // Then the prompt's and the answer's blocks are in, and the least recently used ones out.
  Hits serve(const TraceRequest& request);
  int64_t tokens_held() const { return tokens_; }

 private:
  // A block ever seen; what forgets nothing has them all, the pool those in its list.
  struct Entry {
    int32_t tokens = 0;
    int32_t newer = kNone, older = kNone;
    bool pooled = false;
  };
  static constexpr int32_t kNone = -1;
  int32_t entry_of(uint64_t id, int32_t tokens, bool& seen);
  void touch(int32_t index);
  void unlink(int32_t index);
  void push_newest(int32_t index);
  void evict();

  const int64_t capacity_tokens_;
  int64_t tokens_ = 0;
  absl::flat_hash_map<uint64_t, int32_t> index_of_;
  std::vector<Entry> entries_;
  std::vector<int32_t> path_;  // scratch: a request's blocks, head first
  int32_t newest_ = kNone, oldest_ = kNone;
};

}  // namespace troupe::sim
