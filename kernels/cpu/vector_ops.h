#pragma once

// The inner loops that exist once per instruction set. Their bodies (*_body.h) are written once over a small
// vector type and compiled three times, each in its own namespace and under its own target attribute, by
// target_sse.cc, target_avx2.cc and target_avx512.cc. Which of them runs is chosen at run time through this
// table. Every result is a pure function of its row: no lane, tail or neighbour changes a bit of it.

#include <cstdint>

#include "kernels/kernels.h"

namespace troupe::cpu {

// out[d] = x[d] · rsqrt(mean(x²) + epsilon) · weight[d]
struct NormRow {
  const float* x;       // (D)
  const float* weight;  // (D)
  void* out;            // (D) of `dtype`
  DType dtype;
  int64_t columns;
  float epsilon;
};

// out[i] = silu(gate[i]) · up[i], all of `dtype`
struct SiluRow {
  const void* gate;
  const void* up;
  void* out;
  DType dtype;
  int64_t columns;
};

// The norm and rotation of one head: in and out are (2 · half) of `dtype`.
struct RotateRow {
  const void* in;
  const float* cosine;  // (half), or null: no rotation
  const float* sine;    // (half), or null
  void* out;
  DType dtype;
  int64_t half;
  const float* norm;  // (2 · half), or null: no norm
  float epsilon;
};

struct ConvertRow {
  const void* in;  // float32, bfloat16 or float16; may be unaligned
  DType dtype;
  float* out;
  int64_t columns;
};

// Up to kAttentionRows query rows that share a key/value head: `queries` consecutive tokens × `group` heads.
inline constexpr int64_t kAttentionRows = 32;
inline constexpr int64_t kAttentionTileKeys = 64;
inline constexpr int64_t kAttentionChunkKeys = 512;  // a multiple of the tile
inline constexpr int64_t kAttentionRecordHead = 16;
inline constexpr int64_t kPrefillRows = 128;
struct AttentionTile {
  const void* q;        // row (i, h) at q + (i · row_stride + h · head_dim)
  void* out;            // likewise
  int64_t row_stride;   // H · C
  DType dtype;          // of q, out, keys and values
  int64_t queries;      // tokens
  int64_t group;        // H / G heads of each
  int64_t head_dim;     // C
  int64_t first_count;  // keys that token 0 sees; token i sees i more
  const char* keys;     // of block 0, this layer and head; block b lies block_bytes · b further on
  const char* values;
  int64_t block_bytes;
  int64_t block_size;
  const int32_t* blocks;
  float scale;
  const float* slopes;  // (group): ALiBi, or null
  int64_t first_chunk;  // of kAttentionChunkKeys keys; 0 where records is null
  int64_t end_chunk;
  // Null: all chunks are computed and their results written to out. Else (end_chunk - first_chunk, rows,
  // attention_record_floats) for what each chunk found, to be merged later.
  float* records;
  float* scratch;  // attention_scratch_floats(head_dim), 64-byte aligned
};

// The place of a panel's results: (rows, columns) of `dtype`, rows `stride` elements apart, added to what is
// there if `accumulate` (float32 only).
struct PanelOut {
  void* data;
  DType dtype;
  int64_t columns;  // of the panel that exist: <= its width
  int64_t stride;
  bool accumulate;
  const float* bias;  // (columns), or null
};

// One panel of a weight, panel_columns wide, times rows of x (panels_body.h). pair_product takes bfloat16 x
// and panels of pairs, (ceil(K / 2), panel_columns, 2), with a zero behind an odd K.
struct PanelProduct {
  const void* x;      // (rows, K), row-major: float32; pair_product: bfloat16
  const void* panel;  // (K, panel_columns) of weight_dtype
  DType weight_dtype;
  int64_t depth;  // K
  int64_t rows;
  PanelOut out;
  float* sums;  // pair_product: (rows, panel_columns) of scratch, 64-byte aligned
};

// For AMX (tile_panels_amx.h) rows of x and columns of a weight are taken 32 at a time, and k in steps of 64
// bytes a row: a step of a block of rows is (32 rows, 64 bytes), of a panel (2 x 16 columns, 16 groups of k,
// 16 columns, 4 bytes), two tile registers each.
inline constexpr int64_t kTileSide = 32;
inline constexpr int64_t kTileStepBytes = kTileSide * 64;
inline constexpr int64_t kTileSums = kTileSide * kTileSide;

// Row-major rows into a block, with zeros past K; what stands past the rows is left as it is.
struct TileArrange {
  const void* x;
  int64_t x_stride;   // bytes
  int64_t row_bytes;  // from x on to the row's end
  int64_t rows;       // <= 32
  int64_t steps;      // <= row_bytes / 64, rounded up
  char* out;          // (steps, kTileStepBytes), 64-byte aligned
};

struct TileBlocks {
  const void* data;  // as TileArrange leaves it
  int64_t stride;    // bytes from one block to the next
  int64_t steps;
  int64_t rows;
  int64_t blocks() const { return (rows + kTileSide - 1) / kTileSide; }
};

// The scales of an int8 product's integers (QuadProduct).
struct TileScales {
  const float* rows;           // of x
  const float* columns;        // (32) of the panel
  const int32_t* column_sums;  // (32)
};

// Some steps of k of one panel of a weight times rows of x.
struct TileProduct {
  TileBlocks x;
  const void* panel;  // (steps, kTileStepBytes)
  const void* next;   // as many bytes, prefetched meanwhile
  float* sums;        // (blocks, kTileSums), where steps come before or after these; else null
  bool first;         // no steps come before
  bool last;          // the results are written to out
  PanelOut out;
  const TileScales* scales;  // int8 only
};

// A panel of gates and one of ups times rows of x, silu(gate) · up of which are a step of rows again.
struct TileGated {
  TileBlocks x;
  const void* panels[2];   // gates, ups: (steps, kTileStepBytes)
  const void* next[2];     // prefetched meanwhile
  const float* biases[2];  // (32) each, or null
  char* out;               // (blocks) of kTileStepBytes, as TileBlocks has them
  int64_t out_stride;      // bytes from one block to the next
};

struct TileOps {
  void (*arrange)(const TileArrange&);
  void (*product)(const TileProduct&);
  void (*row)(const TileProduct&);  // the same for a single row and all steps
  void (*gated)(const TileGated&);
  void (*quad_product)(const TileProduct&);  // int8
  void (*quad_row)(const TileProduct&);
};

// One row of activations in 8 bits: quads[k] = 128 + round(x[k] / scale), scale = max |x| / 127.
struct QuantizeRow {
  const void* x;  // (K) of `dtype`
  DType dtype;
  int64_t columns;  // K
  uint8_t* quads;   // (K rounded up to 4); what is past K is left alone
  float* scale;
};

// One panel of an int8 weight times rows of quantised x (quads_body.h).
inline constexpr int64_t kQuadColumns = 64;
struct QuadProduct {
  const uint8_t* x;            // (rows, 4 · quads): 128 + value
  const float* x_scales;       // (rows)
  const int8_t* panel;         // (quads, kQuadColumns, 4)
  const float* scales;         // (kQuadColumns) of the panel's columns
  const int32_t* column_sums;  // (kQuadColumns): Σ_k of the panel's columns
  int64_t quads;               // ceil(K / 4)
  int64_t rows;
  PanelOut out;
  int32_t* sums;  // (rows, kQuadColumns) of scratch, 64-byte aligned
};

// With AMX: whether it weighs the values as well. Products of 16 rows cost what they cost, however few heads
// share them. How many do is the model's, so that it does not depend on the batch.
inline bool tiles_weigh_values(int64_t group, int64_t head_dim) {
  return group >= 2 || head_dim <= 64;
}

struct VectorOps {
  int64_t panel_columns;
  void (*rms_norm)(const NormRow&);
  void (*silu_mul)(const SiluRow&);
  void (*rotate)(const RotateRow&);
  void (*to_float)(const ConvertRow&);
  void (*attention)(const AttentionTile&);
  void (*merge_attention)(const AttentionTile&);
  void (*panel_product)(const PanelProduct&);
  void (*quantize)(const QuantizeRow&);
  void (*quad_product)(const QuadProduct&);
  void (*pair_product)(const PanelProduct&);  // null without AVX512-BF16
  // attention() of up to kPrefillRows rows, the same bits. REQUIRES bfloat16, tiles_weigh_values(), C a
  // multiple of 32, blocks of a multiple of 16 tokens, no records. Null without AMX.
  void (*prefill)(const AttentionTile&) = nullptr;
  const TileOps* tiles = nullptr;  // null without AMX
};

// Large enough for every instruction set.
inline int64_t attention_record_floats(int64_t head_dim) {
  return kAttentionRecordHead + (head_dim + 15) / 16 * 16;
}
inline int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t record = attention_record_floats(head_dim);
  return record * (3 * kAttentionRows + kAttentionTileKeys) + kAttentionRows * kAttentionTileKeys;
}
inline int64_t prefill_scratch_floats(int64_t head_dim) {
  constexpr int64_t kLanes = 16;
  return kPrefillRows * head_dim / 2 + 2 * kPrefillRows * (2 + head_dim) +
         (kAttentionTileKeys + kLanes) * head_dim + 6 * kAttentionTileKeys * kLanes;
}

const VectorOps& vector_ops(CpuIsa isa);  // REQUIRES: not kAuto, and the machine has it
const VectorOps& sse_vector_ops();
const VectorOps& avx2_vector_ops();
const VectorOps& avx512_vector_ops();
const VectorOps& avx512_bf16_vector_ops();
const VectorOps& amx_vector_ops();

}  // namespace troupe::cpu
