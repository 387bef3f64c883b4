// One device, one stream: ops are launched and run in the order of the calls; only upload and download wait.
// Which kernel an op gets is decided here, by its shape.

#include "kernels/cuda/backend.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention/attention_timing.h"
#include "kernels/cuda/attention/step_array_bytes.h"
#include "kernels/cuda/device/check_cuda.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/device/watchdog.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/weight_upload.h"
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/step/readback.h"
#include "kernels/cuda/step/step_arrays.h"
#include "kernels/cuda/step/step_gaps.h"
#include "kernels/cuda/step/step_graphs.h"
#include "kernels/cuda/step/step_inputs.h"
#include "kernels/host/dense_weight.h"

namespace troupe::cuda {
namespace {

// Memory for the sums of pieces; from there on the pieces of decodes are longer.
constexpr int64_t kPartialBytesMax = int64_t{512} << 20;

struct StreamDeleter {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};

class CudaBackend final : public Backend {
 public:
  struct Parts {
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDeleter> stream;
    Products::Others products;
    std::string device;  // "NVIDIA H100 80GB HBM3 (sm_90)"
  };
  CudaBackend(const BackendOptions& options, Parts parts)
      : options_(options),
        parts_(std::move(parts)),
        stream_(parts_.stream.get()),
        watchdog_(options.cuda.hang_timeout),
        launch_stream_(stream_, options.cuda.overlaps && !options.cuda.reference_ops && driver_overlaps() &&
                                    has_hopper_code()),
        graphs_(stream_),
        products_(stream_, std::move(parts_.products),
                  {.device = parts_.device,
                   .cuda = options.cuda,
                   .before_measuring = [this] { launch_recorded(); }}),
        arrays_(stream_, watchdog_, [this] { launch_recorded(); }) {
    launch_stream_.watchdog = &watchdog_;
    if (options.cuda.times_gaps) gaps_.emplace(stream_);
  }
  ~CudaBackend() override { cudaStreamSynchronize(stream_); }

  std::string_view name() const override { return "cuda"; }
  std::string description() const override {
    return absl::StrCat("cuda ", parts_.device, options_.cuda.reference_ops ? ", reference ops" : "",
                        kernels_.shortfall.empty() ? "" : ", ", kernels_.shortfall);
  }
  DType activation_dtype() const override { return options_.dtype; }
  bool host_memory() const override { return false; }
  std::optional<DeviceMemory> device_memory() const override {
    size_t free = 0, total = 0;
    check_cuda("device_memory", cudaMemGetInfo(&free, &total));
    return DeviceMemory{static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }

  StatusOr<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    launch_recorded();  // the device may not be waited for meanwhile
    TROUPE_ASSIGN_OR_RETURN(auto buffer, CudaBuffer::allocate(bytes));
    products_.forget_biases(buffer->data(), bytes);
    // The default stream's memset returns before it is done, and our own stream does not wait for it.
    cudaError_t error = cudaMemset(buffer->data(), 0, bytes);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return cuda_status("clearing device memory", error);
    return StatusOr<std::unique_ptr<DeviceBuffer>>(std::move(buffer));
  }

  void upload(void* to, const void* from, size_t bytes) override {
    launch_recorded();
    products_.forget_biases(to, bytes);
    check_cuda("upload", cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    watchdog_.wait("upload", stream_);
  }
  void download(void* to, const void* from, size_t bytes) override {
    launch_recorded();
    watchdog_.wait("download", stream_);  // here: a copy to memory that may be paged out waits by itself
    check_cuda("download", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    watchdog_.wait("download", stream_);
  }

  StatusOr<std::unique_ptr<Readback>> make_readback(size_t bytes) override {
    auto readback = PinnedReadback::make(stream_, watchdog_, bytes);
    if (readback == nullptr) return no_pinned_memory(bytes);
    return StatusOr<std::unique_ptr<Readback>>(std::move(readback));
  }

  StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight, WeightFormat format) override;

  void bind_kv(const KvLayout& layout, void* data, int64_t block_count) override {
    kv_ = {layout, data, block_count};
    check_kv(kv_);
    planned_.reset();
    upload_.reset();  // the weights are there
    kernels_ = choose_attention({.stream = stream_,
                                 .arrays = arrays_,
                                 .kv = kv_,
                                 .limits = limits_,
                                 .piece_keys = piece_keys_,
                                 .partials = [this](int64_t count) { return partials_for(count); }},
                                options_, parts_.device, products_.tuning());
  }

  StatusOr<int64_t> reserve(const KvLayout& layout, const StepLimits& limits) override;

  Status save_tuning() override { return products_.save(); }
  std::vector<double> take_gaps() override { return gaps_ ? gaps_->take() : std::vector<double>(); }

  GraphCounts graphs() const override {
    return {graphs_.launched_count(), graphs_.unchanged_count(), graphs_.instantiated_count()};
  }

  void begin_step(StepKind kind) override {
    const bool whole = kind == StepKind::kDecode && options_.cuda.graphs;
    arrays_.begin_step(whole);
    if (whole) {
      launch_stream_.list = &graphs_.begin();
    } else if (gaps_) {
      gaps_->begin_step();
    }
  }
  void end_step() override {
    launch_recorded();
    if (gaps_) gaps_->end_step();
    arrays_.end_step();
    planned_.reset();
  }

  void embed(const EmbedParams& params) override {
    check_params(params);
    const int32_t* const ids = inputs_.ids(params);
    cuda::embed(launch_stream_, params, ids);
  }
  void rms_norm(const RmsNormParams& params) override {
    check_params(params, options_.dtype);
    cuda::rms_norm(launch_stream_, params);
  }
  void matmul(const MatmulParams& params) override {
    const ProductOperands operands = operands_of(params);
    const ProductCandidate chosen = products_.choose(operands);
    products_.multiply(launch_stream_, chosen, operands, std::exchange(behind_attention_, false));
  }
  void normed_matmul(const RmsNormParams& norm, const MatmulParams& params) override {
    check_params(norm, options_.dtype);
    check_normed("matmul", norm, params.x);
    const ProductOperands operands = operands_of(params);
    if (!products_.choose_rows(operands, &norm)) return Backend::normed_matmul(norm, params);
    skinny_gemm(launch_stream_, operands, {.norm = &norm});
  }
  void rope_kv(const RopeKvParams& params) override {
    check_params(params, options_.dtype, kv_);
    const RopeKvIndices indices{arrays_.of(StepArray::kPositions, params.positions),
                                arrays_.of(StepArray::kSlots, params.slots)};
    cuda::rope_kv(launch_stream_, params, kv_, indices);
  }
  void attention(const AttentionParams& params) override;
  void silu_mul(const SiluMulParams& params) override {
    check_params(params, options_.dtype);
    cuda::silu_mul(launch_stream_, params);
  }
  void gated_mlp(const GatedMlpParams& params) override {
    check_params(params, options_.dtype);
    if (!gate_at_once(params, nullptr)) return Backend::gated_mlp(params);
    add_down(params);
  }
  void normed_gated_mlp(const RmsNormParams& norm, const GatedMlpParams& params) override {
    check_params(norm, options_.dtype);
    check_params(params, options_.dtype);
    check_normed("gated_mlp", norm, params.x);
    if (!gate_at_once(params, &norm)) return Backend::normed_gated_mlp(norm, params);
    add_down(params);
  }
  void gather_rows(const GatherRowsParams& params) override {
    check_params(params);
    const int32_t* const rows = arrays_.of(StepArray::kRows, params.rows);
    cuda::gather_rows(launch_stream_, params, rows);
  }
  void sample(const SampleParams& params) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;

 private:
  // The arguments that an attention's plan is made of.
  struct PlannedFor {
    const int32_t *query_starts, *context_counts, *block_tables;
    size_t requests;
    int32_t heads;
    bool operator==(const PlannedFor&) const = default;
  };
  void plan(const AttentionParams& params);

  ProductOperands operands_of(const MatmulParams& params) const;
  // gated = silu(gate) * up in one launch; false: nothing was launched.
  bool gate_at_once(const GatedMlpParams& params, const RmsNormParams* norm);
  void add_down(const GatedMlpParams& params);

  // Sends what is kept for a graph to the stream; later launches of this step go there at once.
  void launch_recorded() {
    if (!graphs_.is_recording()) return;
    launch_stream_.list = nullptr;
    graphs_.end();
    arrays_.send();
    if (gaps_) gaps_->begin_step();  // else the host's work above would look like the device's
    graphs_.launch();
  }

  // Room for the sums of pieces, of decodes and of tiles.
  StatusOr<float*> partials(int64_t count);
  float* partials_for(int64_t count);  // of a step within the limits

  BackendOptions options_;
  Parts parts_;
  cudaStream_t stream_;  // all work, in its order
  Watchdog watchdog_;    // of that
  // stream_; or the list of a graph that becomes one launch in it: until launch_recorded(), which
  // arrays_.of() and products_.choose() may call. So it is read after those calls, never beside them.
  LaunchStream launch_stream_;
  bool behind_attention_ = false;  // the next product is
  StepGraphs graphs_;
  std::optional<StepGaps> gaps_;
  Products products_;
  StepArrays arrays_;
  StepInputs inputs_{arrays_};
  BoundKv kv_;
  StepLimits limits_;
  int32_t piece_keys_ = kPieceKeys;
  AttentionKernels kernels_;
  AttentionPlan plan_;                 // of the last attention
  std::optional<PlannedFor> planned_;  // within a step: what it is of
  std::vector<int32_t> token_requests_;
  std::unique_ptr<CudaBuffer> partials_;
  std::unique_ptr<WeightUpload> upload_;  // while weights come
};

StatusOr<std::unique_ptr<PackedWeight>> CudaBackend::pack(const Tensor& weight, WeightFormat format) {
  TROUPE_RETURN_IF_ERROR(check_weight(weight, format));
  if (format == WeightFormat::kInt8) return invalid_argument("int8 weights: only on the cpu, not on cuda");
  const DType dtype = options_.dtype;
  TROUPE_ASSIGN_OR_RETURN(auto memory,
                          CudaBuffer::allocate(static_cast<size_t>(weight.elements()) * dtype_size(dtype)));
  const Tensor values = Tensor::make(memory->data(), dtype, {weight.shape[0], weight.shape[1]});
  if (upload_ == nullptr) upload_ = WeightUpload::make(stream_, {.threads = upload_threads()});
  if (upload_ == nullptr) return no_pinned_memory(size_t{128} << 20);
  upload_->copy(weight, values);
  return std::make_unique<DenseWeight>(values, std::move(memory));
}

ProductOperands CudaBackend::operands_of(const MatmulParams& params) const {
  check_params(params, options_.dtype);
  if (params.weight->format() != WeightFormat::kActivation) check_failed("matmul", "weight is int8");
  const auto& weight = static_cast<const DenseWeight&>(*params.weight);
  return {params.x, weight.values(), params.out, params.accumulate, params.bias};
}

bool CudaBackend::gate_at_once(const GatedMlpParams& params, const RmsNormParams* norm) {
  const ProductOperands operands = operands_of(
      {.x = params.x, .weight = params.gate_up, .out = params.mixed, .bias = params.gate_up_bias});
  const GatedForm form{params.gated, norm};
  const auto chosen = products_.choose_gated(operands, form);
  return chosen && products_.launch_gated(launch_stream_, *chosen, operands, form);
}

void CudaBackend::add_down(const GatedMlpParams& params) {
  matmul({.x = params.gated,
          .weight = params.down,
          .out = params.sum,
          .accumulate = true,
          .bias = params.down_bias});
}

// Once for all layers of a step.
void CudaBackend::plan(const AttentionParams& params) {
  const auto heads = static_cast<int32_t>(params.q.shape[1]);
  const PlannedFor wanted{params.query_starts.data(), params.context_counts.data(),
                          params.block_tables.data(), params.context_counts.size(), heads};
  if (planned_ == wanted) return;
  if (arrays_.in_step()) planned_ = wanted;
  AttentionShape shape{params.query_starts, params.context_counts, heads / kv_.layout.kv_heads};
  shape.piece_keys = piece_keys_;
  shape.gate = kernels_.gate;
  if (kernels_.kv_map) shape.tile_rows = kWarpgroupRows;
  shape.tiles_at_once = tiles_at_once(kv_.layout, kernels_.kv_map.has_value());
  if (options_.cuda.cascade) {
    shape.block_tables = params.block_tables;
    shape.block_table_stride = params.block_table_stride;
    shape.block_size = kv_.layout.block_size;
  }
  plan_attention(shape, plan_);
  if (launch_stream_.list != nullptr) round_up(plan_);
}

void CudaBackend::attention(const AttentionParams& params) {
  check_params(params, options_.dtype, kv_);
  if (params.out.elements() == 0) return;
  behind_attention_ = true;
  AttentionIndices indices = indices_on_device(arrays_, params);
  if (!options_.cuda.reference_ops && tile_attention_takes(params, kv_)) {
    plan(params);
    PlannedAttention planned = plan_on_device(arrays_, plan_, partials_for(partial_floats(plan_, kv_)));
    planned.lanes = kernels_.lanes && lane_attention_takes(params.q.shape[1], kv_.layout);
    planned.kv_map = kernels_.kv_map ? &*kernels_.kv_map : nullptr;
    planned.in_turn = kernels_.in_turn;
    return attention_mma(launch_stream_, params, kv_, indices, planned);
  }
  token_requests(params.query_starts, token_requests_);
  indices.token_requests = arrays_.of(StepArray::kTokenRequests, token_requests_);
  plain_attention(launch_stream_, params, kv_, indices);
}

float* CudaBackend::partials_for(int64_t count) {
  const auto sums = partials(count);
  if (!sums.ok()) check_failed("attention", std::string(sums.status().message()));
  return *sums;
}

StatusOr<float*> CudaBackend::partials(int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  if (partials_ == nullptr || bytes > partials_->bytes()) {
    launch_recorded();  // with the memory that is given back
    watchdog_.wait("attention", stream_);
    TROUPE_ASSIGN_OR_RETURN(partials_, CudaBuffer::allocate(bytes));
  }
  return static_cast<float*>(partials_->data());
}

StatusOr<int64_t> CudaBackend::reserve(const KvLayout& layout, const StepLimits& limits) {
  limits_ = limits;
  const AttentionLimits of_attention{limits.tokens, limits.requests, limits.positions,
                                     static_cast<int32_t>(limits.heads / layout.kv_heads),
                                     tiles_at_once(layout, /*warpgroups=*/false)};
  int64_t bytes = 0;
  if (!options_.cuda.reference_ops && tile_attention_takes(options_.dtype, layout)) {
    const auto floats = floats_of_partial(layout);
    piece_keys_ =
        piece_keys_for(of_attention, kPartialBytesMax / static_cast<int64_t>(sizeof(float)) / floats);
    TROUPE_RETURN_IF_ERROR(partials(most_partials(of_attention, piece_keys_) * floats).status());
    bytes += static_cast<int64_t>(partials_->bytes());
  }
  const auto arrays = step_array_bytes(of_attention, piece_keys_, layout.block_size);
  for (const auto& [which, size] : arrays) bytes += arrays_.reserve(which, size);
  return bytes + arrays_.reserve_whole(whole_step_bytes(arrays));
}

void CudaBackend::sample(const SampleParams& params) {
  check_params(params);
  const DrawInputs inputs = inputs_.draws(params);
  cuda::sample(launch_stream_, params, inputs);
  if (inputs.chain_count == 0) return;
  cuda::sample_chains(launch_stream_, params, inputs);
  take_mirostat(*this, params, inputs_.chains(), inputs.mus);
}

void CudaBackend::copy_blocks(std::span<const BlockCopy> copies) {
  check_copies(copies, kv_);
  const int32_t* const pairs = inputs_.copies(copies);
  cuda::copy_blocks(launch_stream_, kv_, options_.dtype, pairs, static_cast<int64_t>(copies.size()));
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const std::string device, find_device());
  if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) {
    return cuda_status(absl::StrCat("CUDA device 0, ", device), error);
  }
  cudaStream_t stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      error != cudaSuccess) {
    return cuda_status(absl::StrCat("CUDA device 0, ", device, ": a stream"), error);
  }
  CudaBackend::Parts parts;
  parts.stream.reset(stream);
  parts.device = device;
  if (!options.cuda.reference_ops) {
    TROUPE_ASSIGN_OR_RETURN(parts.products.library, make_library_products());
    TROUPE_ASSIGN_OR_RETURN(parts.products.swap_ab, SwapAb::make());
  }
  return std::make_unique<CudaBackend>(options, std::move(parts));
}

}  // namespace troupe::cuda
