#pragma once

// Cuts a step's attention into work items and spreads them over the pool. The arithmetic of one item is in
// attention_body.h; how the items are cut changes no bit of a result: not over queries and heads, whose
// results do not touch, and not over keys, whose chunks have fixed bounds and are merged in order whichever
// thread computed them.

#include <cstdint>
#include <vector>

#include "kernels/cpu/vector_ops.h"
#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"

namespace troupe::cpu {

// The memory of one layer's keys (which = 0) or values (1) of one head in one block: (B, C).
struct KvPlace {
  int64_t block;
  int64_t layer;
  int64_t which;
  int64_t head;
};
char* kv_head(const BoundKv& kv, DType dtype, const KvPlace& place);

class Attention {
 public:
  Attention(const VectorOps& ops, ThreadPool& pool);
  // REQUIRES check_params(params).
  void run(const AttentionParams& params, const BoundKv& kv);

 private:
  // Some consecutive queries of one request, all heads of one key/value head.
  struct Item {
    int64_t request;
    int64_t group;        // of G
    int64_t first_query;  // within the request
    int64_t query_count;
    int64_t head_begin;  // within the group's H / G heads
    int64_t head_count;
    int64_t cost;  // keys × rows, to start with the longest
    int64_t first_chunk;
    int64_t end_chunk;
    int64_t records;  // where the chunks' records lie in records_, in floats; kNoRecords: not split
    bool prefill;     // by VectorOps::prefill
  };
  static constexpr int64_t kNoRecords = -1;

  void cut(const AttentionParams& params, const BoundKv& kv);
  int64_t prefill_rows(const AttentionParams& params, const KvLayout& layout) const;
  void split_long_items(int64_t head_dim);
  void reserve_scratch(int64_t head_dim);
  AttentionTile tile(const AttentionParams& params, const BoundKv& kv, const Item& item) const;

  const VectorOps& ops_;
  ThreadPool& pool_;
  std::vector<Item> items_;
  std::vector<Item> merges_;  // items that were split, whole
  std::unique_ptr<DeviceBuffer> records_;
  int64_t record_floats_ = 0;
  std::unique_ptr<DeviceBuffer> scratch_;
  int64_t scratch_floats_ = 0;  // of one thread
};

}  // namespace troupe::cpu
