#pragma once

// Owns a model on a backend: weights, activations, KV memory. Turns a Batch into one forward pass and the
// tokens of the items that sample. Driven by the engine's compute thread alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/kernels.h"
#include "worker/model/config.h"
#include "worker/model/guidance.h"
#include "worker/schedule/batch.h"

namespace troupe {

enum class LoadFormat : uint8_t {
  kAuto,   // safetensors
  kDummy,  // random weights of config.json's shapes; no other file is read
};
inline constexpr std::pair<std::string_view, LoadFormat> kLoadFormatNames[] = {{"auto", LoadFormat::kAuto},
                                                                               {"dummy", LoadFormat::kDummy}};

struct RunnerOptions {
  std::string model_dir;
  LoadFormat load_format = LoadFormat::kAuto;
  std::string backend = "cpu";    // kernels.h names
  DType dtype = DType::kFloat32;  // activation type
  WeightFormat weight_format = WeightFormat::kActivation;
  int threads = 1;
  CpuIsa isa = CpuIsa::kAuto;  // cpu only; tests force each one
  CudaOptions cuda;            // cuda only
  int32_t block_size = 16;
  // KV budget, rounded down to blocks. 0: the share of device memory that memory_utilization allows, most of
  // it until fit_kv(); only if the backend has memory of its own.
  int64_t kv_cache_tokens = 0;
  double memory_utilization = 0.9;   // (0, 1]
  int32_t max_batched_tokens = 512;  // activations are allocated once, for this many
  int32_t max_num_seqs = 64;
  int32_t max_model_len = 0;  // 0: the model's max_position_embeddings
  // Share of the host's memory for a model there; without it, all that is free (load/host_memory.h).
  std::optional<int64_t> host_bytes_max;
};

// Memory of a loaded model; constant, because nothing is allocated after load and fit_kv().
struct RunnerMemory {
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t kv_bytes = 0;
  std::optional<DeviceMemory> device;  // now; only if the backend has memory of its own
};

// Describes how the S items of a batch with `samples` draw their tokens, in order.
struct StepDraws {
  std::span<const SampleRow> rows;  // (S)
  std::span<const int32_t> shown;   // indices of the rows whose logits are wanted
  // Not null: called before the rows are drawn from, while a device computes their logits. Rows' masks may be
  // filled in here.
  const std::function<void()>* before_draws = nullptr;
  std::span<const GuidedRow> guided = {};  // rows whose logits are guided first
};

struct StepOutput {
  std::span<const TokenId> tokens;  // (S); valid until the next collect()
  // (shown, V) float32, host memory: the model's own logits, guided or not, without edits. Valid until the
  // next launch().
  Tensor logits = {};
};

class ModelRunner {
 public:
  // Reads config.json and safetensors (mmap; single file or sharded with index). Errors name file, item,
  // reason.
  static StatusOr<std::unique_ptr<ModelRunner>> load(const RunnerOptions& options);
  ~ModelRunner();

  // config.json's, but for tie_word_embeddings: false where the checkpoint has a head that is not its
  // embedding.
  const ModelConfig& config() const;
  int32_t block_count() const;
  int32_t max_model_len() const;
  RunnerMemory memory() const;
  // If kv_cache_tokens is 0, reallocates the KV memory: all that fits beside the memory which the first steps
  // made the device hold (kernels, graphs, library workspaces), which is unknown before. REQUIRES: no batch
  // in flight and nothing cached. After an error there is no KV memory and the runner is unusable.
  Status fit_kv();
  std::string description() const;  // backend, dtype, bytes of weights and KV: one line for the log

  // Starts the step: first its copies, then its items, then its draws. A device with memory of its own
  // computes on asynchronously, unless logits are to be shown or guided. An id below zero refers to the token
  // drawn at that row of the step launched before (Scheduler::advance), as does a draw's last_drawn. After an
  // error nothing was launched. REQUIRES: batch.token_count <= max_batched_tokens, items <= max_num_seqs; at
  // most one launched step is not collected.
  Status launch(const Batch& batch, const StepDraws& draws);
  // Waits for the oldest uncollected step. REQUIRES: there is one.
  StepOutput collect();
  // Launches a step and collects it.
  StatusOr<StepOutput> run(const Batch& batch, const StepDraws& draws);
  // Whether launch() returns while the step is still being computed.
  bool runs_ahead() const;
  Status save_tuning();             // CudaOptions::tune_file
  std::vector<double> take_gaps();  // Backend's
  GraphCounts graphs() const;       // Backend's
  // Visits the logits (V) after each of the last launch()'s ids [first, first + count), counted through its
  // items in order; a bounded number at a time. Overwrites the logits that collect() returned.
  using RowVisitor = std::function<void(int32_t row, std::span<const float> logits)>;
  void visit_rows(int32_t first, int32_t count, const RowVisitor& visit);
  // The same of the last norm's output (hidden_size), of which the head makes the logits.
  void visit_hidden(int32_t first, int32_t count, const RowVisitor& visit);
  // Log-probability of every id after the first, given those before it: (ids.size() - 1). At most
  // max_model_len ids. Overwrites the KV blocks from 0 on: REQUIRES no batch in flight and nothing cached.
  StatusOr<std::vector<float>> logprobs(std::span<const TokenId> ids);

 private:
  struct Impl;
  explicit ModelRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
