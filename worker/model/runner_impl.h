#pragma once

// State shared by runner.cc (construction) and runner_steps.cc (computation).

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "worker/model/model.h"
#include "worker/model/runner.h"
#include "worker/model/step_buffers.h"

namespace troupe {

struct ModelRunner::Impl {
  RunnerOptions options;
  ModelConfig config;
  int32_t max_model_len = 0;
  int32_t block_count = 0;
  int64_t parameter_count = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t step_bytes = 0;  // the backend's own
  // The backend outlives what it made: members are destroyed in reverse order.
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceBuffer> kv;
  Workspace workspace;
  std::unique_ptr<Model> model;
  StepBuffers buffers;
  std::unique_ptr<float[]> host_logits;  // (S, V); pages are touched only for shown logits
  // Tokens of the last two steps: one step's are collected, or read by the other, while that is computed.
  struct Draws {
    std::unique_ptr<DeviceBuffer> tokens;  // (S) int32
    std::unique_ptr<Readback> readback;
    int64_t count = 0;        // S
    int64_t shown_count = 0;  // rows in host_logits
  };
  std::array<Draws, 2> draws;
  uint64_t launched = 0, collected = 0;  // number of steps

  // Before anything is loaded.
  Status check_memory() const;
  Status load_weights();
  Status allocate_memory();
  KvLayout kv_layout() const;
  Workspace::Limits workspace_limits() const;
  Status allocate_kv(double share);
  Status take_what_fits(int64_t block_bytes, double share);
  Status check_ids(std::span<const TokenId> ids, int64_t drawn_count) const;
  Status check_batch(const Batch& batch, const StepDraws& draws) const;
  Draws& draws_of(uint64_t step) { return draws[step % 2]; }
  const Draws& last_draws() const { return draws[(launched + 1) % 2]; }  // the last launched step's
  Status check_item(const BatchItem& item) const;
  Status check_copies(const Batch& batch) const;
  Context context(const Step& step) { return {*backend, workspace, step}; }
  // Returns the model's logits of `rows`, in host memory. Valid until the next call.
  Tensor logits(const Context& of, std::span<const int32_t> rows);
  void for_each_part(int32_t first, int32_t count, const std::function<void(std::span<const int32_t>)>& use);
  void guide(const Tensor& logits, const GuidedRow& guided);
  void draw(const Tensor& logits, const StepDraws& wanted, const Tensor& drawn);
};

}  // namespace troupe
