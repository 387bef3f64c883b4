#include "kernels/cpu/attention.h"

#include <algorithm>
#include <string>

#include "kernels/check.h"
#include "kernels/host/host_buffer.h"

namespace troupe::cpu {
namespace {

constexpr int kItemsPerThread = 4;
constexpr int64_t kPrefillRowsMin = 32;

}  // namespace

char* kv_head(const BoundKv& kv, DType dtype, const KvPlace& place) {
  const KvLayout& layout = kv.layout;
  const int64_t head_elements = int64_t{layout.block_size} * layout.head_dim;
  const int64_t head = (place.layer * layout.kv_heads + place.head) * 2 + place.which;
  const int64_t index = place.block * layout.block_elements() + head * head_elements;
  return static_cast<char*>(kv.data) + index * static_cast<int64_t>(dtype_size(dtype));
}

Attention::Attention(const VectorOps& ops, ThreadPool& pool) : ops_(ops), pool_(pool) {}

void Attention::run(const AttentionParams& params, const BoundKv& kv) {
  reserve_scratch(kv.layout.head_dim);
  cut(params, kv);
  split_long_items(kv.layout.head_dim);
  pool_.parallel_for(static_cast<int64_t>(items_.size()), [&](int64_t i, int thread) {
    AttentionTile work = tile(params, kv, items_[static_cast<size_t>(i)]);
    work.scratch = static_cast<float*>(scratch_->data()) + thread * scratch_floats_;
    (items_[static_cast<size_t>(i)].prefill ? ops_.prefill : ops_.attention)(work);
  });
  for (const Item& item : merges_) {
    AttentionTile work = tile(params, kv, item);
    work.scratch = static_cast<float*>(scratch_->data());
    ops_.merge_attention(work);
  }
}

void Attention::reserve_scratch(int64_t head_dim) {
  const int64_t floats = std::max(attention_scratch_floats(head_dim), prefill_scratch_floats(head_dim));
  if (floats <= scratch_floats_) return;
  auto buffer = HostBuffer::allocate(static_cast<size_t>(floats * pool_.thread_count()) * sizeof(float));
  if (!buffer.ok()) check_failed("attention", to_std(buffer.status().message()));
  scratch_ = std::move(*buffer);
  scratch_floats_ = floats;
}

// Rows of an item of a prefill: as many as leave work for all threads, which share the turning of keys and
// values; 0 where nothing is gained, or cannot be had.
int64_t Attention::prefill_rows(const AttentionParams& params, const KvLayout& layout) const {
  const int64_t heads = params.q.shape[1] / layout.kv_heads;
  const bool can = ops_.prefill != nullptr && params.q.dtype == DType::kBFloat16 &&
                   layout.head_dim % 32 == 0 && layout.block_size % 16 == 0 && heads <= kAttentionRows &&
                   tiles_weigh_values(heads, layout.head_dim);
  if (!can) return 0;
  const auto items_of = [&](int64_t rows) {
    int64_t items = 0;
    for (size_t r = 0; r < params.context_counts.size(); ++r) {
      const int64_t queries = params.query_starts[r + 1] - params.query_starts[r];
      if (queries * heads >= kPrefillRowsMin) items += (queries * heads + rows - 1) / rows * layout.kv_heads;
    }
    return items;
  };
  for (int64_t rows = kPrefillRows; rows >= kPrefillRowsMin; rows /= 2) {
    if (items_of(rows) >= kItemsPerThread * pool_.thread_count()) return rows;
  }
  return items_of(kPrefillRowsMin) >= pool_.thread_count() ? kPrefillRowsMin : 0;
}

void Attention::cut(const AttentionParams& params, const BoundKv& kv) {
  const int64_t groups = kv.layout.kv_heads;
  const int64_t heads = params.q.shape[1] / groups;
  const int64_t head_count = std::min(heads, kAttentionRows);
  const int64_t rows_of_prefill = prefill_rows(params, kv.layout);
  items_.clear();
  for (size_t r = 0; r < params.context_counts.size(); ++r) {
    const int64_t queries = params.query_starts[r + 1] - params.query_starts[r];
    const int64_t cached = params.context_counts[r] - queries;
    const bool prefill = rows_of_prefill > 0 && queries * heads >= kPrefillRowsMin;
    const int64_t queries_per_item = (prefill ? rows_of_prefill : kAttentionRows) / head_count;
    for (int64_t first = 0; first < queries; first += queries_per_item) {
      const int64_t count = std::min(queries_per_item, queries - first);
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t head = 0; head < heads; head += head_count) {
          const int64_t here = std::min(head_count, heads - head);
          const int64_t keys = cached + first + count;
          const int64_t chunks = (keys + kAttentionChunkKeys - 1) / kAttentionChunkKeys;
          items_.push_back({static_cast<int64_t>(r), g, first, count, head, here, keys * count * here, 0,
                            chunks, kNoRecords, prefill});
        }
      }
    }
  }
}

// A few long contexts (one request, decoding) make too few items for the threads: those that are more than a
// thread's share of the step are cut along their keys.
void Attention::split_long_items(int64_t head_dim) {
  merges_.clear();
  int64_t total = 0;
  for (const Item& item : items_) total += item.cost;
  const int64_t share = total / (int64_t{kItemsPerThread} * pool_.thread_count()) + 1;
  int64_t floats = 0;
  const size_t whole_count = pool_.thread_count() == 1 ? 0 : items_.size();
  for (size_t i = 0; i < whole_count; ++i) {
    const Item whole = items_[i];
    if (whole.prefill) continue;
    const int64_t pieces = std::min((whole.cost + share - 1) / share, whole.end_chunk);
    if (pieces <= 1) continue;
    const int64_t record = whole.query_count * whole.head_count * attention_record_floats(head_dim);
    Item piece = whole;
    piece.cost = whole.cost / pieces;
    for (int64_t p = 0; p < pieces; ++p) {
      piece.first_chunk = whole.end_chunk * p / pieces;
      piece.end_chunk = whole.end_chunk * (p + 1) / pieces;
      piece.records = floats + piece.first_chunk * record;
      if (p == 0) {
        items_[i] = piece;
      } else {
        items_.push_back(piece);
      }
    }
    merges_.push_back(whole);
    merges_.back().records = floats;
    floats += whole.end_chunk * record;
  }
  if (floats > record_floats_) {
    record_floats_ = 2 * floats;  // contexts grow: not a new buffer at every chunk
    auto buffer = HostBuffer::allocate(static_cast<size_t>(record_floats_) * sizeof(float));
    if (!buffer.ok()) check_failed("attention", to_std(buffer.status().message()));
    records_ = std::move(*buffer);
  }
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.cost > b.cost; });
}

AttentionTile Attention::tile(const AttentionParams& params, const BoundKv& kv, const Item& item) const {
  const auto r = static_cast<size_t>(item.request);
  const int64_t head_dim = kv.layout.head_dim;
  const int64_t heads = params.q.shape[1];
  const int64_t queries = params.query_starts[r + 1] - params.query_starts[r];
  const int64_t token = params.query_starts[r] + item.first_query;
  const int64_t head = item.group * (heads / kv.layout.kv_heads) + item.head_begin;
  const auto size = static_cast<int64_t>(dtype_size(params.q.dtype));
  const int64_t offset = (token * heads + head) * head_dim * size;
  AttentionTile work{};
  work.q = params.q.as<const char>() + offset;
  work.out = params.out.as<char>() + offset;
  work.row_stride = heads * head_dim;
  work.dtype = params.q.dtype;
  work.queries = item.query_count;
  work.group = item.head_count;
  work.head_dim = head_dim;
  work.first_count = params.context_counts[r] - queries + item.first_query + 1;
  work.keys = kv_head(kv, params.q.dtype, {0, params.layer, 0, item.group});
  work.values = kv_head(kv, params.q.dtype, {0, params.layer, 1, item.group});
  work.block_bytes = kv.layout.block_elements() * size;
  work.block_size = kv.layout.block_size;
  work.blocks = params.block_tables.data() + item.request * params.block_table_stride;
  work.scale = params.scale;
  work.slopes = params.alibi_slopes.empty() ? nullptr : params.alibi_slopes.data() + head;
  work.first_chunk = item.first_chunk;
  work.end_chunk = item.end_chunk;
  work.records = item.records == kNoRecords ? nullptr : static_cast<float*>(records_->data()) + item.records;
  return work;
}

}  // namespace troupe::cpu
