// Builds the index tensors of a step (positions, slots, block tables), asks the model for it, and draws the
// tokens where the logits are: from a device only they come back. All memory is allocated by load(); the
// vectors below only ever shrink and grow within their reserved size, so the step loop never meets the
// allocator.

#include "worker/model/runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/model/checkpoint.h"
#include "worker/model/dummy_weights.h"
#include "worker/model/log_softmax.h"
#include "worker/model/memory_budget.h"
#include "worker/model/model.h"
#include "worker/model/registry.h"
#include "worker/model/step_buffers.h"
#include "worker/model/weights.h"

namespace troupe {

namespace {

// Rows per head product in visit_rows(): with a vocabulary of 150,000 that is 38 MB of logits at a time.
constexpr int32_t kScoringRowsMax = 64;

// Tensors that checkpoints carry and the computation does not use: the rope frequencies of old exports, and a
// copy of the embedding where it is tied.
bool is_ignorable(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight";
}

// Slots are 32-bit.
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max() / 2;

// Where nobody asks for a length: the model's own, as far as its window does not matter.
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

struct ModelRunner::Impl {
  RunnerOptions options;
  ModelConfig config;
  int32_t max_model_len = 0;
  int32_t block_count = 0;
  int64_t parameter_count = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
  // The backend outlives what it made: members are destroyed in reverse order.
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceBuffer> kv;
  Workspace workspace;
  std::unique_ptr<Model> model;
  StepBuffers buffers;
  std::unique_ptr<float[]> host_logits;  // (S, V), touched only as far as logits are shown
  std::unique_ptr<DeviceBuffer> drawn;   // (S) int32
  std::vector<TokenId> tokens;           // the same on the host

  Status load_weights();
  Status allocate_memory();
  Status take_what_fits(int64_t block_bytes);
  Status check_ids(std::span<const TokenId> ids) const;
  Status check_item(const BatchItem& item) const;
  Status check_copies(const Batch& batch) const;
  void forward(const Context& of) {
    const StepScope scope(*backend);
    model->forward(of);
  }
  Context context(const Step& step) { return {*backend, workspace, step}; }
  // The model's logits of `rows`, in host memory. Valid until the next call.
  Tensor logits(const Context& of, std::span<const int32_t> rows);
  StepOutput draw(const Tensor& logits, const StepDraws& draws);
};

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
  TROUPE_ASSIGN_OR_RETURN(model, family->build(config, weights));
  parameter_count = weights.parameter_count();
  weight_bytes = weights.byte_count();
  return source->check_all_taken(is_ignorable);
  // The mapping ends here: everything has been packed or copied.
}

Status ModelRunner::Impl::allocate_memory() {
  TROUPE_ASSIGN_OR_RETURN(
      workspace, Workspace::allocate(config,
                                     {.tokens = options.max_batched_tokens,
                                      .rows = std::min(options.max_num_seqs, options.max_batched_tokens),
                                      .positions = max_model_len},
                                     *backend));
  const KvLayout layout{.layers = static_cast<int>(config.layers),
                        .kv_heads = static_cast<int>(config.kv_heads),
                        .head_dim = static_cast<int>(config.head_dim),
                        .block_size = options.block_size};
  const auto element_bytes = static_cast<int64_t>(dtype_size(backend->activation_dtype()));
  if (options.kv_cache_tokens == 0)
    TROUPE_RETURN_IF_ERROR(take_what_fits(layout.block_elements() * element_bytes));
  if (__builtin_mul_overflow(layout.block_elements() * element_bytes, int64_t{block_count}, &kv_bytes)) {
    return invalid_argument(absl::StrCat("kv_cache_tokens ", options.kv_cache_tokens, " overflows 64 bits"));
  }
  TROUPE_ASSIGN_OR_RETURN(kv, backend->allocate(static_cast<size_t>(kv_bytes)));
  backend->bind_kv(layout, kv->data(), block_count);
  const auto rows_max = static_cast<size_t>(options.max_num_seqs);
  TROUPE_ASSIGN_OR_RETURN(drawn, backend->allocate(rows_max * sizeof(TokenId)));
  tokens.reserve(rows_max);
  host_logits.reset(new float[static_cast<size_t>(workspace.logits.tensor.elements())]);
  buffers.reserve(static_cast<size_t>(options.max_batched_tokens), static_cast<size_t>(options.max_num_seqs),
                  static_cast<int32_t>(blocks_for(max_model_len, options.block_size)));
  return absl::OkStatus();
}

// REQUIRES: weights and activations are on the device.
Status ModelRunner::Impl::take_what_fits(int64_t block_bytes) {
  const std::optional<DeviceMemory> device = backend->device_memory();
  if (!device.has_value()) {
    return invalid_argument(absl::StrCat("kv_cache_tokens 0 is not supported on ", to_absl(backend->name()),
                                         "; must be at least one block of ", options.block_size));
  }
  TROUPE_ASSIGN_OR_RETURN(const int64_t blocks, kv_blocks_that_fit({.device = *device,
                                                                    .utilization = options.memory_utilization,
                                                                    .block_bytes = block_bytes}));
  block_count = static_cast<int32_t>(std::min(blocks, kTokensMax / options.block_size));
  return absl::OkStatus();
}

Tensor ModelRunner::Impl::logits(const Context& of, std::span<const int32_t> rows) {
  Tensor result = model->logits(of, rows);
  if (backend->host_memory()) return result;
  backend->download(host_logits.get(), result.data, result.bytes());
  result.data = host_logits.get();
  return result;
}

StepOutput ModelRunner::Impl::draw(const Tensor& logits, const StepDraws& draws) {
  const int64_t count = logits.shape[0], vocab = logits.shape[1];
  const auto shown = static_cast<int64_t>(draws.shown.size());
  for (int64_t i = 0; i < shown; ++i) {  // before the edits
    backend->download(host_logits.get() + i * vocab,
                      logits.as<float>() + draws.shown[static_cast<size_t>(i)] * vocab,
                      static_cast<size_t>(vocab) * sizeof(float));
  }
  backend->sample({logits, draws.rows, Tensor::make(drawn->data(), DType::kInt32, {count})});
  tokens.resize(static_cast<size_t>(count));
  backend->download(tokens.data(), drawn->data(), tokens.size() * sizeof(TokenId));
  return {tokens, Tensor::make(host_logits.get(), DType::kFloat32, {shown, vocab})};
}

Status ModelRunner::Impl::check_ids(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return invalid_argument(
          absl::StrCat("token id ", id, " is not in the vocabulary [0, ", config.vocab_size, ")"));
    }
  }
  return absl::OkStatus();
}

Status ModelRunner::Impl::check_item(const BatchItem& item) const {
  const auto refuse = [&](std::string_view reason) {
    return absl::InternalError(absl::StrCat("request ", item.id, ": ", to_absl(reason)));
  };
  const int64_t count = static_cast<int64_t>(item.ids.size());
  if (count == 0 || item.start < 0) return refuse("has no ids, or starts below 0");
  const int64_t end = item.start + count;
  if (end > max_model_len) return refuse(absl::StrCat(end, " tokens, but max_model_len is ", max_model_len));
  const int64_t needed = blocks_for(end, options.block_size);
  if (static_cast<int64_t>(item.blocks.size()) < needed) {
    return refuse(absl::StrCat(item.blocks.size(), " blocks, but ", needed, " are needed"));
  }
  const Status ids_status = check_ids(item.ids);
  if (!ids_status.ok()) return refuse(to_std(ids_status.message()));
  for (int64_t i = 0; i < needed; ++i) {
    const BlockId block = item.blocks[static_cast<size_t>(i)];
    if (block < 0 || block >= block_count) {
      return refuse(absl::StrCat("block ", block, " is not in [0, ", block_count, ")"));
    }
  }
  return absl::OkStatus();
}

Status ModelRunner::Impl::check_copies(const Batch& batch) const {
  for (const KvCopy& copy : batch.copies) {
    const bool known = copy.from >= 0 && copy.from < block_count && copy.to >= 0 && copy.to < block_count;
    if (known && copy.from != copy.to) continue;
    return absl::InternalError(absl::StrCat("copy of block ", copy.from, " to ", copy.to,
                                            "; must be two blocks in [0, ", block_count, ")"));
  }
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
  TROUPE_ASSIGN_OR_RETURN(impl->backend,
                          make_backend(options.backend, {.dtype = options.dtype,
                                                         .threads = options.threads,
                                                         .isa = options.isa,
                                                         .reference_ops = options.reference_ops,
                                                         .cascade = options.cascade,
                                                         .measures = options.measures,
                                                         .tune_file = options.tune_file}));
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
  return {impl_->weight_bytes, impl_->workspace.byte_count(), impl_->kv_bytes};
}

std::string ModelRunner::description() const {
  const Impl& m = *impl_;
  return absl::StrCat(
      m.config.architecture, ", ", m.parameter_count / 1000000, " M weights in ", m.weight_bytes >> 20,
      m.options.weight_format == WeightFormat::kInt8 ? " MiB of int8, " : " MiB, ", m.backend->description(),
      ", ", to_absl(dtype_name(m.backend->activation_dtype())), ", KV ", m.block_count, " blocks of ",
      m.options.block_size, " tokens in ", m.kv_bytes >> 20, " MiB");
}

StatusOr<StepOutput> ModelRunner::run(const Batch& batch, const StepDraws& draws) {
  Impl& m = *impl_;
  const auto limit = [](std::string_view what, size_t count, int32_t max) {
    return absl::InternalError(
        absl::StrCat("batch of ", count, " ", to_absl(what), "; must be in [1, ", max, "]"));
  };
  size_t token_count = 0;
  for (const BatchItem& item : batch.items) {
    TROUPE_RETURN_IF_ERROR(m.check_item(item));
    token_count += item.ids.size();
  }
  if (batch.items.empty() || batch.items.size() > static_cast<size_t>(m.options.max_num_seqs)) {
    return limit("items", batch.items.size(), m.options.max_num_seqs);
  }
  if (token_count > static_cast<size_t>(m.options.max_batched_tokens)) {
    return limit("tokens", token_count, m.options.max_batched_tokens);
  }
  TROUPE_RETURN_IF_ERROR(m.check_copies(batch));
  m.buffers.clear();
  for (const BatchItem& item : batch.items) m.buffers.add(item, m.options.block_size);
  for (const KvCopy& copy : batch.copies) m.buffers.copies.push_back({copy.from, copy.to});
  if (draws.rows.size() != m.buffers.rows.size()) {
    return absl::InternalError(absl::StrCat("batch with ", m.buffers.rows.size(), " items that sample, but ",
                                            draws.rows.size(), " draws"));
  }
  m.backend->copy_blocks(m.buffers.copies);
  const Step step = m.buffers.step();
  const Context context = m.context(step);
  m.forward(context);
  if (m.buffers.rows.empty()) return StepOutput{};  // all chunks end before their prompt's last token
  return m.draw(m.model->logits(context, m.buffers.rows), draws);
}

Status ModelRunner::save_tuning() {
  return impl_->backend->save_tuning();
}

void ModelRunner::visit_rows(int32_t first, int32_t count, const RowVisitor& visit) {
  Impl& m = *impl_;
  const int32_t rows_max = std::min({kScoringRowsMax, m.options.max_num_seqs, m.options.max_batched_tokens});
  const auto vocab = static_cast<size_t>(m.config.vocab_size);
  const Step step = m.buffers.step();
  const Context context = m.context(step);
  for (int32_t begin = first; begin < first + count; begin += rows_max) {
    m.buffers.rows.clear();
    for (int32_t r = begin; r < std::min(begin + rows_max, first + count); ++r) m.buffers.rows.push_back(r);
    const Tensor logits = m.logits(context, m.buffers.rows);
    for (size_t i = 0; i < m.buffers.rows.size(); ++i) {
      visit(m.buffers.rows[i], {logits.as<float>() + i * vocab, vocab});
    }
  }
}

StatusOr<std::vector<float>> ModelRunner::logprobs(std::span<const TokenId> ids) {
  Impl& m = *impl_;
  const auto total = static_cast<int32_t>(ids.size());
  const int32_t block_size = m.options.block_size;
  const int64_t capacity = std::min<int64_t>(m.max_model_len, int64_t{m.block_count} * block_size);
  if (ids.empty() || static_cast<int64_t>(ids.size()) > capacity) {
    return invalid_argument(
        absl::StrCat(ids.size(), " ids; must be in [1, ", capacity, "] (max_model_len and KV memory)"));
  }
  // All of them, also the last, which no chunk may hold: it is an index into the logits.
  TROUPE_RETURN_IF_ERROR(m.check_ids(ids));
  std::vector<BlockId> blocks(static_cast<size_t>(blocks_for(total, block_size)));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
  std::vector<float> result;
  result.reserve(ids.size() - 1);
  for (int32_t start = 0; start < total - 1; start += m.options.max_batched_tokens) {
    const int32_t count = std::min(m.options.max_batched_tokens, total - start);
    BatchItem item;
    item.ids = ids.subspan(static_cast<size_t>(start), static_cast<size_t>(count));
    item.count = count;
    item.start = start;
    item.blocks = blocks;
    m.buffers.clear();
    m.buffers.add(item, block_size);
    const Step step = m.buffers.step();
    const Context context = m.context(step);
    m.forward(context);
    // The last id of all has no successor to score.
    const int32_t scored = std::min(count, total - 1 - start);
    visit_rows(0, scored, [&](int32_t row, std::span<const float> logits) {
      result.push_back(log_probability(logits, ids[static_cast<size_t>(start + row) + 1]));
    });
  }
  return result;
}

}  // namespace troupe
