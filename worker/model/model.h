#pragma once

// The runner's interface to a model: one step forward, then logits of chosen rows. In between the step's
// final residual stream stays in the workspace.

#include <cstdint>
#include <memory>
#include <span>

#include "common/core/status.h"
#include "kernels/kernels.h"
#include "worker/model/config.h"
#include "worker/model/load/weights.h"

namespace troupe {

// One step's tokens, all requests concatenated (letters: kernels.h).
struct Step {
  std::span<const int32_t> ids;             // (T)
  std::span<const int32_t> positions;       // (T)
  std::span<const int32_t> slots;           // (T)
  std::span<const int32_t> query_starts;    // (R + 1)
  std::span<const int32_t> context_counts;  // (R)
  std::span<const int32_t> block_tables;    // (R, block_table_stride)
  int32_t block_table_stride = 0;
  Tensor drawn;  // the last step's tokens; ids below zero index them (EmbedParams)
  int64_t token_count() const { return static_cast<int64_t>(ids.size()); }
};

// Activation memory, allocated once for the largest step. Layers overwrite it in turn; only `residual`
// lives across them.
struct Workspace {
  DeviceTensor residual;  // (T, D) float32
  DeviceTensor normed;    // (T, D) activation: a product's input
  DeviceTensor qkv;       // (T, (H + 2G)·C) activation
  DeviceTensor q;         // (T, H, C) activation, rotated
  DeviceTensor attended;  // (T, H·C) activation
  DeviceTensor gate_up;   // (T, 2F) activation
  DeviceTensor gated;     // (T, F) activation
  DeviceTensor gathered;  // (S, D) float32: rows whose logits are wanted
  DeviceTensor logits;    // (S, V) float32
  DeviceTensor cos_sin;   // (positions, C) float32, or empty: no rotation

  int64_t byte_count() const;

  struct Limits {
    int64_t tokens = 0;     // T at most
    int64_t rows = 0;       // S at most
    int64_t positions = 0;  // size of the rope table
  };
  static StatusOr<Workspace> allocate(const ModelConfig& config, const Limits& limits, Backend& backend);
  // The bytes that allocate() would take.
  static double bytes_for(const ModelConfig& config, const Limits& limits, DType activation);
};

// The state shared by all layers of a step.
struct Context {
  Backend& backend;
  Workspace& workspace;
  const Step& step;
};

class Model {
 public:
  virtual ~Model() = default;
  // Embeds, runs all layers, writes KV. REQUIRES: the step fits the workspace.
  virtual void forward(const Context& context) = 0;
  // Returns (S, V) float32 in the workspace, for `rows` of the last forward(). Valid until the next call.
  virtual Tensor logits(const Context& context, std::span<const int32_t> rows) = 0;
  // The same of the hidden states behind the last norm: (S, D) activation.
  virtual Tensor hidden(const Context& context, std::span<const int32_t> rows) = 0;
};

}  // namespace troupe
