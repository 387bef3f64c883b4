// Makes a runner: checks options, loads weights, and allocates all memory. Nothing is allocated later.

#include "worker/model/runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends.h"
#include "worker/model/decoder.h"
#include "worker/model/families/registry.h"
#include "worker/model/host_need.h"
#include "worker/model/load/checkpoint.h"
#include "worker/model/load/dummy_weights.h"
#include "worker/model/load/memory_budget.h"
#include "worker/model/load/weights.h"
#include "worker/model/runner_impl.h"

namespace troupe {

namespace {

// Tensors present in checkpoints but not computed with: the rope
// frequencies of old exports, and a copy of a tied embedding.
bool is_ignorable(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight";
}

// Share of the fitting KV memory taken before the first steps show what else the device holds (fit_kv()).
constexpr double kFirstKvShare = 7.0 / 8;

// Slots are 32-bit.
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max() / 2;

// Without an option the length is the model's own, limited to its window.
int64_t max_model_len_of(const RunnerOptions& o, const ModelConfig& config) {
  if (o.max_model_len > 0) return o.max_model_len;
  if (config.sliding_window > 0) return std::min(config.max_position_embeddings, config.sliding_window);
  return config.max_position_embeddings;
}

Status check_options(const RunnerOptions& o, const ModelConfig& config) {
  const auto refuse = [](std::string_view name, int64_t value, std::string_view wanted) {
    return invalid_argument(
        absl::StrCat(to_absl(name), " ", value, " is not supported; must be ", to_absl(wanted)));
  };
  if (o.block_size < 1 || o.block_size > 1024) return refuse("block_size", o.block_size, "in [1, 1024]");
  if (o.kv_cache_tokens != 0 && o.kv_cache_tokens < o.block_size) {
    return refuse("kv_cache_tokens", o.kv_cache_tokens, absl::StrCat("at least one block of ", o.block_size));
  }
  if (o.kv_cache_tokens > kTokensMax) {
    return refuse("kv_cache_tokens", o.kv_cache_tokens, absl::StrCat("at most ", kTokensMax));
  }
  if (!(o.memory_utilization > 0 && o.memory_utilization <= 1)) {
    return invalid_argument(absl::StrCat("gpu_memory_utilization ", o.memory_utilization,
                                         " is not supported; must be in (0, 1]"));
  }
  if (o.max_batched_tokens < 1 || o.max_batched_tokens > (1 << 20)) {
    return refuse("max_num_batched_tokens", o.max_batched_tokens, "in [1, 1048576]");
  }
  if (o.max_num_seqs < 1 || o.max_num_seqs > (1 << 16)) {
    return refuse("max_num_seqs", o.max_num_seqs, "in [1, 65536]");
  }
  if (o.max_model_len < 0 || o.max_model_len > config.position_count_max) {
    return refuse("max_model_len", o.max_model_len,
                  absl::StrCat("at most ", config.position_count_max, ", how far the model's ",
                               "max_position_embeddings ", config.max_position_embeddings,
                               " and its rope scaling reach"));
  }
  const int64_t length = max_model_len_of(o, config);
  if (length < 2) {
    return refuse("max_model_len", length, "at least 2: a token of the prompt and one of the answer");
  }
  if (config.sliding_window > 0 && length > config.sliding_window) {
    return invalid_argument(absl::StrCat(
        o.model_dir, "/config.json: key 'sliding_window': ", config.sliding_window,
        " is not supported where it matters; set max_model_len (now ", length, ") to at most that"));
  }
  return absl::OkStatus();
}

}  // namespace

Status ModelRunner::Impl::load_weights() {
  std::unique_ptr<WeightSource> source;
  if (options.load_format == LoadFormat::kDummy) {
    source = std::make_unique<DummyWeights>(config.dtype, options.threads);
  } else {
    TROUPE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(options.model_dir));
    source = std::make_unique<Checkpoint>(std::move(checkpoint));
  }
  WeightLoader weights(source.get(), backend.get(), options.weight_format);
  const ModelFamily* family = find_model_family(config.architecture);
  if (family == nullptr) {
    return invalid_argument(absl::StrCat("architecture ", config.architecture, " is not supported"));
  }
  if (config.tie_word_embeddings) {
    // As Transformers: a head of the checkpoint's own counts, whatever config.json says of it.
    TROUPE_ASSIGN_OR_RETURN(const bool own_head, weights.differ(kEmbeddingModule, kHeadModule,
                                                                {config.vocab_size, config.hidden_size}));
    config.tie_word_embeddings = !own_head;
  }
  TROUPE_ASSIGN_OR_RETURN(model, family->build(config, weights));
  parameter_count = weights.parameter_count();
  weight_bytes = weights.byte_count();
  return source->check_all_taken(is_ignorable);
  // The mapping ends here: everything is packed or copied.
}

Status ModelRunner::Impl::check_memory() const {
  if (!backend->host_memory()) return absl::OkStatus();
  const std::optional<HostMemory> host =
      options.host_bytes_max ? HostMemory{*options.host_bytes_max, "host_bytes_max"} : host_memory();
  if (!host) return absl::OkStatus();
  return check_host_need({.config = config,
                          .model_dir = options.model_dir,
                          .made_up = options.load_format == LoadFormat::kDummy,
                          .format = options.weight_format,
                          .activation = backend->activation_dtype(),
                          .limits = workspace_limits(),
                          .kv = kv_layout(),
                          .block_count = block_count},
                         *host);
}

// No sequence is longer than the KV memory, whatever config.json claims: a table of its 16 million positions
// would take gigabytes.
Workspace::Limits ModelRunner::Impl::workspace_limits() const {
  const int64_t kv_positions = int64_t{block_count} * options.block_size;
  return {.tokens = options.max_batched_tokens,
          .rows = std::min(options.max_num_seqs, options.max_batched_tokens),
          .positions = kv_positions > 0 ? std::min<int64_t>(max_model_len, kv_positions) : max_model_len};
}

Status ModelRunner::Impl::allocate_memory() {
  TROUPE_ASSIGN_OR_RETURN(workspace, Workspace::allocate(config, workspace_limits(), *backend));
  const KvLayout layout = kv_layout();
  TROUPE_ASSIGN_OR_RETURN(step_bytes, backend->reserve(layout, {.tokens = options.max_batched_tokens,
                                                                .requests = options.max_num_seqs,
                                                                .positions = max_model_len,
                                                                .heads = config.heads}));
  TROUPE_RETURN_IF_ERROR(allocate_kv(kFirstKvShare));
  const auto rows_max = static_cast<size_t>(options.max_num_seqs);
  for (Draws& step : draws) {
    TROUPE_ASSIGN_OR_RETURN(step.tokens, backend->allocate(rows_max * sizeof(TokenId)));
    TROUPE_ASSIGN_OR_RETURN(step.readback, backend->make_readback(rows_max * sizeof(TokenId)));
  }
  host_logits.reset(new float[static_cast<size_t>(workspace.logits.tensor.elements())]);
  buffers.reserve(static_cast<size_t>(options.max_batched_tokens), static_cast<size_t>(options.max_num_seqs),
                  static_cast<size_t>(blocks_for(max_model_len, options.block_size)));
  return absl::OkStatus();
}

KvLayout ModelRunner::Impl::kv_layout() const {
  return {.layers = static_cast<int>(config.layers),
          .kv_heads = static_cast<int>(config.kv_heads),
          .head_dim = static_cast<int>(config.head_dim),
          .block_size = options.block_size};
}

// `share`: portion of what fits to take, if kv_cache_tokens is 0.
Status ModelRunner::Impl::allocate_kv(double share) {
  const KvLayout layout = kv_layout();
  const auto element_bytes = static_cast<int64_t>(dtype_size(backend->activation_dtype()));
  if (options.kv_cache_tokens == 0)
    TROUPE_RETURN_IF_ERROR(take_what_fits(layout.block_elements() * element_bytes, share));
  if (__builtin_mul_overflow(layout.block_elements() * element_bytes, int64_t{block_count}, &kv_bytes)) {
    return invalid_argument(absl::StrCat("kv_cache_tokens ", options.kv_cache_tokens, " overflows 64 bits"));
  }
  TROUPE_ASSIGN_OR_RETURN(kv, backend->allocate(static_cast<size_t>(kv_bytes)));
  backend->bind_kv(layout, kv->data(), block_count);
  return absl::OkStatus();
}

// REQUIRES: weights and activations are on the device.
Status ModelRunner::Impl::take_what_fits(int64_t block_bytes, double share) {
  const std::optional<DeviceMemory> device = backend->device_memory();
  if (!device.has_value()) {
    return invalid_argument(absl::StrCat("kv_cache_tokens 0 is not supported on ", to_absl(backend->name()),
                                         "; must be at least one block of ", options.block_size));
  }
  TROUPE_ASSIGN_OR_RETURN(const int64_t blocks, kv_blocks_that_fit({.device = *device,
                                                                    .utilization = options.memory_utilization,
                                                                    .block_bytes = block_bytes}));
  const auto taken = std::max(static_cast<int64_t>(static_cast<double>(blocks) * share), int64_t{1});
  block_count = static_cast<int32_t>(std::min(taken, kTokensMax / options.block_size));
  return absl::OkStatus();
}

ModelRunner::ModelRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelRunner::~ModelRunner() = default;

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::load(const RunnerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  TROUPE_ASSIGN_OR_RETURN(impl->config, load_model_config(options.model_dir));
  TROUPE_RETURN_IF_ERROR(check_options(options, impl->config));
  impl->max_model_len = static_cast<int32_t>(max_model_len_of(options, impl->config));
  impl->block_count = static_cast<int32_t>(options.kv_cache_tokens / options.block_size);
  TROUPE_ASSIGN_OR_RETURN(impl->backend, make_backend(options.backend, {.dtype = options.dtype,
                                                                        .threads = options.threads,
                                                                        .isa = options.isa,
                                                                        .cuda = options.cuda}));
  TROUPE_RETURN_IF_ERROR(impl->check_memory());
  TROUPE_RETURN_IF_ERROR(impl->load_weights());
  TROUPE_RETURN_IF_ERROR(impl->allocate_memory());
  return std::unique_ptr<ModelRunner>(new ModelRunner(std::move(impl)));
}

const ModelConfig& ModelRunner::config() const {
  return impl_->config;
}

int32_t ModelRunner::block_count() const {
  return impl_->block_count;
}

int32_t ModelRunner::max_model_len() const {
  return impl_->max_model_len;
}

RunnerMemory ModelRunner::memory() const {
  return {impl_->weight_bytes, impl_->workspace.byte_count() + impl_->step_bytes, impl_->kv_bytes,
          impl_->backend->device_memory()};
}

Status ModelRunner::fit_kv() {
  if (impl_->options.kv_cache_tokens != 0) return absl::OkStatus();
  impl_->kv.reset();
  return impl_->allocate_kv(1);
}

std::string ModelRunner::description() const {
  const Impl& m = *impl_;
  return absl::StrCat(
      m.config.architecture, ", ", m.parameter_count / 1000000, " M weights in ", m.weight_bytes >> 20,
      m.options.weight_format == WeightFormat::kInt8 ? " MiB of int8, " : " MiB, ", m.backend->description(),
      ", ", to_absl(dtype_name(m.backend->activation_dtype())), ", KV ", m.block_count, " blocks of ",
      m.options.block_size, " tokens in ", m.kv_bytes >> 20, " MiB");
}

GraphCounts ModelRunner::graphs() const {
  return impl_->backend->graphs();
}

std::vector<double> ModelRunner::take_gaps() {
  return impl_->backend->take_gaps();
}

Status ModelRunner::save_tuning() {
  return impl_->backend->save_tuning();
}

}  // namespace troupe
