#include "kernels/ops/attention.h"

#include <string>

#include "kernels/check.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const AttentionParams& params, DType activation, const BoundKv& kv) {
  constexpr const char* kOp = "attention";
  expect_bound(kOp, kv, params.layer);
  if (params.q.rank != 3) check_failed(kOp, "q is " + params.q.shape_text() + ", expected (T, H, C)");
  const int64_t tokens = params.q.shape[0];
  const int64_t heads = params.q.shape[1];
  expect::shape(kOp, "q", params.q, activation, {tokens, heads, kv.layout.head_dim});
  expect::shape(kOp, "out", params.out, activation, {tokens, heads * kv.layout.head_dim});
  if (heads % kv.layout.kv_heads != 0) {
    check_failed(kOp, "q is " + params.q.shape_text() + ", its heads no multiple of the " +
                          std::to_string(kv.layout.kv_heads) + " key/value heads");
  }
  if (!params.alibi_slopes.empty()) expect::count(kOp, "alibi_slopes", params.alibi_slopes.size(), heads);
  const auto requests = static_cast<int64_t>(params.context_counts.size());
  expect::count(kOp, "query_starts", params.query_starts.size(), requests + 1);
  if (params.query_starts[0] != 0 || params.query_starts[static_cast<size_t>(requests)] != tokens) {
    check_failed(
        kOp, "query_starts does not span [0, " + std::to_string(tokens) + "] for q " + params.q.shape_text());
  }
  for (int64_t r = 0; r < requests; ++r) {
    const auto i = static_cast<size_t>(r);
    const int64_t queries = params.query_starts[i + 1] - params.query_starts[i];
    const int64_t keys = params.context_counts[i];
    if (queries < 0 || queries > keys) {
      check_failed(kOp, "request " + std::to_string(r) + " has " + std::to_string(queries) + " queries and " +
                            std::to_string(keys) + " keys, its queries' own included");
    }
    const int64_t blocks = (keys + kv.layout.block_size - 1) / kv.layout.block_size;
    const int64_t first = r * params.block_table_stride;
    if (blocks > params.block_table_stride ||
        first + blocks > static_cast<int64_t>(params.block_tables.size())) {
      check_failed(kOp, "request " + std::to_string(r) + " needs " + std::to_string(blocks) +
                            " blocks, its table row holds " + std::to_string(params.block_table_stride));
    }
    for (int64_t b = 0; b < blocks; ++b) {
      expect::index(kOp, "block_tables", params.block_tables[static_cast<size_t>(first + b)], kv.block_count);
    }
  }
}

}  // namespace troupe
