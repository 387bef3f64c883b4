#pragma once

// The one public face of the compute backends. A Backend owns a device (for `cpu`: a pool of threads),
// allocates its memory and offers the ops of a transformer's step. `ref` is the meaning of every op in plain
// loops; every other backend is held against it. The model code (worker/model) knows only this file, and
// backends.h to make one. Each op's parameters and their check are in ops/.
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

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/copy_blocks.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/gated_mlp.h"
#include "kernels/ops/gather_rows.h"
#include "kernels/ops/kv.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope_kv.h"
#include "kernels/ops/sample.h"
#include "kernels/ops/silu_mul.h"
#include "kernels/ops/weight.h"
#include "kernels/tensor.h"

namespace troupe {

// Device memory on its way to the host, while the device goes on.
class Readback {
 public:
  virtual ~Readback() = default;
  // Copies what is at `from`, in memory of allocate(), when all that was launched before is done; returns at
  // once. REQUIRES: the copy before it was waited for; `bytes` as made for at most.
  virtual void start(const void* from, size_t bytes) = 0;
  // Waits until the result is there: host memory, valid until the next start().
  virtual const void* wait() = 0;
};

// Device memory, freed on destruction.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
  virtual size_t bytes() const = 0;
};

// Upper bounds of the steps to come.
struct StepLimits {
  int64_t tokens = 0;     // T
  int64_t requests = 0;   // R
  int64_t positions = 0;  // of a request
  int64_t heads = 0;      // H
};

// Instruction sets the cpu backend can be held to; kAuto takes the best the machine has. Tests force each
// one.
enum class CpuIsa : uint8_t { kAuto, kSse, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The kernel that computes decodes: the one measured to be faster, or this one wherever it takes the model.
enum class DecodeKernel : uint8_t { kMeasured, kTiles, kLanes };
// And prompts.
enum class PrefillKernel : uint8_t { kMeasured, kTiles, kWarpgroups, kWarpgroupsInTurn };
// And products by a weight.
enum class ProductKernel : uint8_t { kMeasured, kRows, kLibrary, kSwapAb };

// Switches of the "cuda" backend.
struct CudaOptions {
  // The plainest implementation of every op, for accuracy work.
  bool reference_ops = false;
  // Keys that decoding requests share are read once for all of them (attention_plan.h).
  bool cascade = true;
  // Tensor cores (attention_mma.cu) or not (attention_simt.cu). Unmeasured, tensor cores.
  DecodeKernel decode = DecodeKernel::kMeasured;
  // Products of a warp (attention_mma.cu) or Hopper's of four (attention_wgmma.cu), two of whom may take
  // turns at the tensor cores. Unmeasured, the first.
  PrefillKernel prefill = PrefillKernel::kMeasured;
  // That for few rows (skinny_gemm.cu), cuBLASLt's, or Hopper's for 9 to 64 rows (swap_ab_gemm.cu).
  // Unmeasured, the first of these that takes the product.
  ProductKernel products = ProductKernel::kMeasured;
  // A step of decodes is launched as one graph (step_graphs.h).
  bool graphs = true;
  // A kernel comes to the device while the one before it still runs, and a product of few rows reads its
  // weights meanwhile (ptx.cuh's await_launch_before()); from sm_90 on. Not with reference_ops.
  bool overlaps = true;
  // The fastest implementation of a product is measured when its shape comes for the first time, and kept in
  // this file across starts ("": not kept).
  bool measures = false;
  std::string tune_file = {};
  // A wait for the device that takes longer ends the process: a kernel hangs, and nothing gets a device back
  // from that. The message names the ops launched since the last wait. 0: waits for ever.
  std::chrono::milliseconds hang_timeout{0};
  // Records the gaps that take_gaps() returns.
  bool times_gaps = false;
};

struct BackendOptions {
  DType dtype = DType::kFloat32;  // activation type: float32 or bfloat16
  int threads = 1;                // cpu only
  CpuIsa isa = CpuIsa::kAuto;     // cpu only
  CudaOptions cuda = {};
};

// kDecode: a token of each request, a step like thousands before and behind it.
enum class StepKind : uint8_t { kMixed, kDecode };

// Steps that a device launched whole, as an executable graph.
struct GraphCounts {
  int64_t launched = 0;
  int64_t unchanged = 0;  // of those: one that was kept, just as it was, which costs the host next to nothing
  int64_t made = 0;       // where none that was kept could take them over: milliseconds of the host's
};

// Memory of a device that has its own, whichever process uses it.
struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "ref", "cpu", "cuda"
  // For the log: "cpu avx512_bf16, 2 threads". Since bind_kv() with what is slower than it could be, and why.
  virtual std::string description() const = 0;
  virtual DType activation_dtype() const = 0;

  virtual StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;  // zeroed, 64-byte aligned
  // Whether the memory of allocate() is the host's. Where not, only upload and download reach it.
  virtual bool host_memory() const { return true; }
  // The memory that allocate() draws on; nothing where that is the host's.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }
  // Bytes of the host into memory of allocate(). `from` may change when it returns.
  virtual void upload(void* to, const void* from, size_t bytes);
  // The other way: waits for what was launched before.
  virtual void download(void* to, const void* from, size_t bytes);
  // A readback of up to `bytes`. It must not outlive this backend.
  virtual StatusOr<std::unique_ptr<Readback>> make_readback(size_t bytes);
  // `weight` (N, K) in float32, bfloat16 or float16, host memory; it may be unmapped afterwards.
  virtual StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) = 0;
  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) {
    return pack(weight, WeightFormat::kActivation);
  }
  // The KV memory of attention and rope_kv. `data` holds block_count · block_elements() elements of the
  // activation type.
  virtual void bind_kv(const KvLayout& layout, void* data, int64_t block_count) = 0;

  // Takes what memory of its own the backend needs for steps within the limits, and returns its bytes: they
  // take none then. (But for what grows with users' wishes: edits of logits.)
  virtual StatusOr<int64_t> reserve(const KvLayout& /*layout*/, const StepLimits& /*limits*/) { return 0; }

  // Seconds that the device stood still between each two steps since the last call (CudaOptions::
  // times_gaps). Waits for them.
  virtual std::vector<double> take_gaps() { return {}; }

  virtual GraphCounts graphs() const { return {}; }

  // Writes down what was measured (CudaOptions::tune_file).
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
  // The same as matmul, silu_mul, matmul in turn, to the bit; a backend may be faster than that.
  virtual void gated_mlp(const GatedMlpParams& params);
  // The same as rms_norm and then an op on its out, to the bit; norm.out is undefined afterwards. REQUIRES: x
  // of the op is norm.out.
  virtual void normed_matmul(const RmsNormParams& norm, const MatmulParams& product);
  virtual void normed_gated_mlp(const RmsNormParams& norm, const GatedMlpParams& mlp);
  virtual void gather_rows(const GatherRowsParams& params) = 0;
  // A token a row of logits (sampling.h), the same one on every backend. A device is waited for where a row
  // has a μ (SampleRow::mirostat_mu), else not.
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

}  // namespace troupe
