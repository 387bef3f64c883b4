#pragma once

// The one public face of the compute backends. A Backend owns a device (for `cpu`: a pool of threads),
// allocates its memory and offers the ops of a transformer's step. `ref` is the meaning of every op in plain
// loops; every other backend is held against it. The model code (worker/model) knows only this file.
//
// Letters: T tokens of the step (all requests concatenated) · D hidden · H query heads · G key/value heads ·
// C head dim · F ffn width · V vocabulary · N, K a weight's (out, in) · B block size in tokens · R requests
// of the step.
//
// Types: the residual stream, norms, softmax and logits are float32. "Activation" tensors (inputs of
// products, q, attention output, KV) are the backend's activation type: float32 with dtype float32, bfloat16
// with dtype bfloat16. Products accumulate in float32. Every row of a product and every (token, head) of
// attention is computed the same way whatever else is in the batch: results must not depend on the batch
// (bitwise on ref and cpu).
//
// KV of a block: [layer][G][2 (k, v)][B][C] contiguous, all layers of one block together. What attention
// reads of a block for one head is one piece, and blocks lie anywhere: pieces of a page are read as fast as
// memory in order, pieces of half a page at .85 of it.
//
// Threads: a Backend is driven by one thread at a time. Errors: shapes are checked at this boundary; a
// mismatch is a bug of the caller and aborts with both shapes printed.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace troupe {

// Device memory on its way to the host, while the device goes on.
class Readback {
 public:
  virtual ~Readback() = default;
  // Copies what is at `from`, in memory of allocate(), when all that was launched before is done; returns at
  // once. REQUIRES: the copy before it was waited for; `bytes` as made for at most.
  virtual void start(const void* from, size_t bytes) = 0;
  // Until it is there: host memory, valid until the next start().
  virtual const void* wait() = 0;
};

// How a weight is held. kInt8: a byte a value and a scale an output feature; what it is multiplied by is
// rounded to 8 bits as well, with a scale a row (int8.h). Half of bfloat16's bytes, at about a percent of
// error a product.
enum class WeightFormat : uint8_t { kActivation, kInt8 };

// A weight in the backend's own layout. Made by Backend::pack, freed with it.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t rows() const = 0;     // N: output features
  virtual int64_t columns() const = 0;  // K: input features
  virtual int64_t bytes() const = 0;    // as held, padding not counted
  virtual WeightFormat format() const { return WeightFormat::kActivation; }
};

// Device memory, freed on destruction.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

// out[t] = table[ids[t]]
struct EmbedParams {
  std::span<const int32_t> ids;  // (T), each in [0, V), or -1 - s: the one in drawn[s]
  Tensor table;                  // (V, D) as loaded: float32, bfloat16 or float16
  Tensor out;                    // (T, D) float32
  // (S) int32, or empty. What sample() drew in the step before: whoever asks for this one need not know yet.
  Tensor drawn = {};

  // What to take for out[t], where `drawn` is in host memory.
  int64_t id_of(int64_t t) const {
    const int32_t id = ids[static_cast<size_t>(t)];
    return id >= 0 ? id : drawn.as<const int32_t>()[-1 - id];
  }
};

// out = x / sqrt(mean(x²) + epsilon) * weight       (source: Zhang & Sennrich 2019, as in Transformers'
// LlamaRMSNorm)
struct RmsNormParams {
  Tensor x;       // (T, D) float32
  Tensor weight;  // (D) float32, which upload() wrote, no op
  float epsilon = 1e-5f;
  Tensor out;  // (T, D) activation
};

// out = x · weightᵀ (+ bias) (+ out if accumulate), rounded to out's type once
struct MatmulParams {
  Tensor x;                              // (T, K) activation
  const PackedWeight* weight = nullptr;  // (N, K)
  Tensor out;                            // (T, N): activation, or float32
  bool accumulate = false;               // out float32 only: the residual add
  Tensor bias = {};  // (N) float32, added to every row; or empty. What upload() wrote, no op.
};

// Splits qkv, norms and rotates q and k (half-split pairs, as Transformers' rotate_half), writes k and v into
// their blocks. Norms: RmsNormParams' formula over each head, before the rotation (Qwen3).
struct RopeKvParams {
  Tensor qkv;  // (T, (H + 2G)·C) activation
  // This and the norms are what upload() wrote, no op.
  Tensor cos_sin;                      // (positions, C) float32: cos in [0, C/2), sin in [C/2, C); empty: no
                                       // rotation (ALiBi)
  std::span<const int32_t> positions;  // (T)
  std::span<const int32_t> slots;      // (T): block · B + offset
  int layer = 0;
  Tensor q_out;        // (T, H, C) activation
  Tensor q_norm = {};  // (C) float32, or empty: q is not normed
  Tensor k_norm = {};  // (C) float32, or empty: k is not normed
  float norm_epsilon = 1e-6f;
};

// Causal attention of a step's queries over their blocks: query t of request r at position p sees keys [0,
// p].
struct AttentionParams {
  Tensor q;  // (T, H, C) activation
  std::span<const int32_t>
      query_starts;  // (R + 1): request r's queries are rows [query_starts[r], query_starts[r+1])
  std::span<const int32_t> context_counts;  // (R): keys of r, its own new ones included
  std::span<const int32_t> block_tables;    // (R, block_table_stride)
  int32_t block_table_stride = 0;
  int layer = 0;
  float scale = 1.0f;
  Tensor out;  // (T, H·C) activation
  // (H) or empty. ALiBi (Press et al. 2022): score += slope of the head · (key's position - query's
  // position).
  std::span<const float> alibi_slopes = {};
};

// out = silu(gate) * up
struct SiluMulParams {
  Tensor gate_up;  // (T, 2F) activation: gate in columns [0, F), up in [F, 2F)
  Tensor out;      // (T, F) activation
};

// sum += down · (silu(gate · x) * (up · x)), rounded where the three ops it stands for would round
struct GatedMlpParams {
  Tensor x;                               // (T, D) activation
  const PackedWeight* gate_up = nullptr;  // (2F, D): gate over up
  const PackedWeight* down = nullptr;     // (D, F)
  Tensor sum;                             // (T, D) float32
  Tensor mixed;                           // (T, 2F) activation: scratch, of no meaning afterwards
  Tensor gated;                           // (T, F) activation: likewise
  Tensor gate_up_bias = {};               // (2F) float32, or empty
  Tensor down_bias = {};                  // (D) float32, or empty
};

// out[i] = x[rows[i]]: the last rows of the requests that sample
struct GatherRowsParams {
  Tensor x;                       // (T, D) float32
  std::span<const int32_t> rows;  // (S)
  Tensor out;                     // (S, D) float32
};

// All layers of block `from` over those of block `to`. How a partly filled block is shared: the copy is
// written on, the original stays as it is.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;  // once in a call, and never also a `from`
};

struct KvLayout {
  int layers = 0;       // L
  int kv_heads = 0;     // G
  int head_dim = 0;     // C
  int block_size = 16;  // B, tokens
  int64_t block_elements() const { return int64_t{2} * layers * kv_heads * head_dim * block_size; }
};

// What steps will come to at most.
struct StepLimits {
  int64_t tokens = 0;     // T
  int64_t requests = 0;   // R
  int64_t positions = 0;  // of a request
  int64_t heads = 0;      // H
};

// Instruction sets the cpu backend can be held to; kAuto takes the best the machine has. Tests force each
// one.
enum class CpuIsa : uint8_t { kAuto, kSse, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Whose kernel computes decodes: that which is measured to be faster, or this one wherever it takes the
// model.
enum class DecodeKernel : uint8_t { kMeasured, kTiles, kLanes };
// And prompts.
enum class PrefillKernel : uint8_t { kMeasured, kTiles, kWarpgroups };

struct BackendOptions {
  DType dtype = DType::kFloat32;  // activation type: float32 or bfloat16
  int threads = 1;                // cpu only
  CpuIsa isa = CpuIsa::kAuto;     // cpu only
  // cuda only: of every op the plainest implementation, for accuracy work.
  bool reference_ops = false;
  // cuda only: keys that decoding requests share are read once for all of them (attention_plan.h).
  bool cascade = true;
  // cuda only: tensor cores (attention_mma.cu) or not (attention_simt.cu). Unmeasured, tensor cores.
  DecodeKernel decode = DecodeKernel::kMeasured;
  // cuda only: products of a warp (attention_mma.cu) or Hopper's of four (attention_wgmma.cu).
  // Unmeasured, the former.
  PrefillKernel prefill = PrefillKernel::kMeasured;
  // cuda only: a step of decodes is launched as one graph (step_graphs.h).
  bool graphs = true;
  // cuda only: a kernel comes to the device while the one before it still runs, and a product of few rows
  // reads its weights meanwhile (ptx.cuh's await_launch_before()); from sm_90 on. Not with reference_ops.
  bool overlaps = true;
  // cuda only: the fastest implementation of a product is measured when its shape comes for the first time,
  // and kept in this file across starts ("": not kept).
  bool measures = false;
  std::string tune_file = {};
  // cuda only: take_gaps() has something to tell.
  bool times_gaps = false;
};

// kDecode: a token of each request, a step like thousands before and behind it.
enum class StepKind : uint8_t { kMixed, kDecode };

// Of a device with memory of its own, whoever uses it.
struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;    // "ref", "cpu", "cuda"
  virtual std::string description() const = 0;  // "cpu avx512_bf16, 2 threads"
  virtual DType activation_dtype() const = 0;

  virtual StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;  // zeroed, 64-byte aligned
  // Whether the memory of allocate() is the host's. Where not, only upload and download reach it.
  virtual bool host_memory() const { return true; }
  // What allocate() draws on; nothing where that is the host's.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }
  // Bytes of the host into memory of allocate(). `from` may change when it returns.
  virtual void upload(void* to, const void* from, size_t bytes);
  // The other way: waits for what was launched before.
  virtual void download(void* to, const void* from, size_t bytes);
  // For copies of up to `bytes`. Not to outlive this backend.
  virtual StatusOr<std::unique_ptr<Readback>> make_readback(size_t bytes);
  // `weight` (N, K) in float32, bfloat16 or float16, host memory; it may be unmapped afterwards.
  virtual StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) = 0;
  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) {
    return pack(weight, WeightFormat::kActivation);
  }
  // Where attention and rope_kv find the KV. `data` holds block_count · block_elements() of the activation
  // type.
  virtual void bind_kv(const KvLayout& layout, void* data, int64_t block_count) = 0;

  // Takes what memory of its own the backend needs for steps within the limits, and returns its bytes: they
  // take none then. (But for what grows with users' wishes: edits of logits.)
  virtual StatusOr<int64_t> reserve(const KvLayout& /*layout*/, const StepLimits& /*limits*/) { return 0; }

  // Seconds that the device stood still between each two steps since the last call (BackendOptions::
  // times_gaps). Waits for them.
  virtual std::vector<double> take_gaps() { return {}; }

  // Steps that were made executable graphs, as far as none that was kept could take them over: of thousands a
  // few, since each costs the host milliseconds.
  virtual int64_t graphs_made() const { return 0; }

  // Writes down what was measured (BackendOptions::tune_file).
  virtual Status save_tuning() { return absl::OkStatus(); }

  // Between the two, spans of an op's parameters that begin at one place and are as long hold the same
  // values: what is made of them (copies on a device, plans) is made once, not again for each layer. A device
  // may begin with the step's ops at end_step() only. See StepScope.
  virtual void begin_step(StepKind /*kind*/) {}
  virtual void end_step() {}

  virtual void embed(const EmbedParams& params) = 0;
  virtual void rms_norm(const RmsNormParams& params) = 0;
  virtual void matmul(const MatmulParams& params) = 0;
  virtual void rope_kv(const RopeKvParams& params) = 0;
  virtual void attention(const AttentionParams& params) = 0;
  virtual void silu_mul(const SiluMulParams& params) = 0;
  // As matmul, silu_mul and matmul one after the other, to the bit; a backend may do better than that.
  virtual void gated_mlp(const GatedMlpParams& params);
  // As rms_norm and then an op on its out, to the bit; norm.out is of no meaning afterwards. REQUIRES: x of
  // the op is norm.out.
  virtual void normed_matmul(const RmsNormParams& norm, const MatmulParams& product);
  virtual void normed_gated_mlp(const RmsNormParams& norm, const GatedMlpParams& mlp);
  virtual void gather_rows(const GatherRowsParams& params) = 0;
  // A token a row of logits (sampling.h), the same one on every backend.
  virtual void sample(const SampleParams& params) = 0;
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
};

// A step's forward pass over its index arrays, which stay as they are.
class StepScope {
 public:
  StepScope(Backend& backend, StepKind kind) : backend_(backend) { backend.begin_step(kind); }
  ~StepScope() { backend_.end_step(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  Backend& backend_;
};

// `name`: "ref", "cpu", "cuda", or the path of a backend module (device/module.h; has a slash), which cuda is
// one of. kInvalidArgument names what exists; kUnavailable says why a module cannot be had.
StatusOr<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);
// The device a "cuda" backend would compute on, in words; kUnavailable says why there is none, kNotFound
// where the machine has no driver for one.
StatusOr<std::string> find_cuda_device();

}  // namespace troupe
