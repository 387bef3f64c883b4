// Builds the index tensors of a step (positions, slots, block tables), runs the model, and draws the tokens
// next to the logits: a device returns only tokens, and the next step reads them on the device. load()
// allocates all memory; the vectors below stay within their reserved size, so the step loop never allocates.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/model/log_softmax.h"
#include "worker/model/runner_impl.h"

namespace troupe {

namespace {

// Rows per head product in visit_rows(): 38 MB of logits at a time for a vocabulary of 150,000.
constexpr int32_t kScoringRowsMax = 64;

// Shown and guided logits are awaited in the middle of the step, as is mirostat's state; and masks are made
// while what was launched before them is computed.
StepKind kind_of(const Batch& batch, const StepDraws& draws) {
  const auto decodes = [](const BatchItem& item) { return item.ids.size() == 1 && item.samples; };
  const auto needs_host = [](const SampleRow& row) { return row.needs_host(); };
  const bool all = draws.shown.empty() && draws.guided.empty() &&
                   std::none_of(draws.rows.begin(), draws.rows.end(), needs_host) &&
                   std::all_of(batch.items.begin(), batch.items.end(), decodes);
  return all ? StepKind::kDecode : StepKind::kMixed;
}

}  // namespace

Tensor ModelRunner::Impl::logits(const Context& of, std::span<const int32_t> rows) {
  Tensor result = model->logits(of, rows);
  if (backend->host_memory()) return result;
  backend->download(host_logits.get(), result.data, result.bytes());
  result.data = host_logits.get();
  return result;
}

// Calls `use` with rows [first, first + count), as many at a time as the workspace has room for.
void ModelRunner::Impl::for_each_part(int32_t first, int32_t count,
                                      const std::function<void(std::span<const int32_t>)>& use) {
  const int32_t rows_max = std::min({kScoringRowsMax, options.max_num_seqs, options.max_batched_tokens});
  for (int32_t begin = first; begin < first + count; begin += rows_max) {
    buffers.rows.clear();
    for (int32_t r = begin; r < std::min(begin + rows_max, first + count); ++r) buffers.rows.push_back(r);
    use(buffers.rows);
  }
}

// By the host: beside two forward passes its three of a vocabulary are little.
void ModelRunner::Impl::guide(const Tensor& logits, const GuidedRow& guided) {
  const auto vocab = static_cast<size_t>(logits.shape[1]);
  float* const row = logits.as<float>() + static_cast<size_t>(guided.row) * vocab;
  float* const negative = logits.as<float>() + static_cast<size_t>(guided.negative_row) * vocab;
  if (backend->host_memory()) return guide_logits({row, vocab}, {negative, vocab}, guided.scale);
  // Two rows at least, and free until logits are shown.
  const std::span<float> first(host_logits.get(), vocab), second(host_logits.get() + vocab, vocab);
  backend->download(first.data(), row, first.size_bytes());
  backend->download(second.data(), negative, second.size_bytes());
  guide_logits(first, second, guided.scale);
  backend->upload(row, first.data(), first.size_bytes());
}

// Draws the tokens of the step being launched. `drawn`: those of the step before it.
void ModelRunner::Impl::draw(const Tensor& logits, const StepDraws& wanted, const Tensor& drawn) {
  const int64_t vocab = logits.shape[1];
  Draws& own = draws_of(launched);
  for (const GuidedRow& guided : wanted.guided) guide(logits, guided);
  own.shown_count = static_cast<int64_t>(wanted.shown.size());
  for (int64_t i = 0; i < own.shown_count; ++i) {  // before the edits
    backend->download(host_logits.get() + i * vocab,
                      logits.as<float>() + wanted.shown[static_cast<size_t>(i)] * vocab,
                      static_cast<size_t>(vocab) * sizeof(float));
  }
  backend->sample({logits, wanted.rows, Tensor::make(own.tokens->data(), DType::kInt32, {own.count}), drawn});
}

// `drawn_count`: number of rows that an id below zero may refer to.
Status ModelRunner::Impl::check_ids(std::span<const TokenId> ids, int64_t drawn_count) const {
  for (const TokenId id : ids) {
    if (id >= 0 ? id < config.vocab_size : -1 - int64_t{id} < drawn_count) continue;
    return invalid_argument(absl::StrCat(
        "token id ", id, " is not in the vocabulary [0, ", config.vocab_size, ")",
        id < 0 && drawn_count > 0 ? absl::StrCat(", nor one of the last step's ", drawn_count) : ""));
  }
  return absl::OkStatus();
}

Status ModelRunner::Impl::check_batch(const Batch& batch, const StepDraws& wanted) const {
  const auto limit = [](std::string_view what, size_t count, int32_t max) {
    return absl::InternalError(
        absl::StrCat("batch of ", count, " ", to_absl(what), "; must be in [1, ", max, "]"));
  };
  size_t token_count = 0, sampled_count = 0;
  for (const BatchItem& item : batch.items) {
    TROUPE_RETURN_IF_ERROR(check_item(item));
    token_count += item.ids.size();
    sampled_count += item.samples;
  }
  if (batch.items.empty() || batch.items.size() > static_cast<size_t>(options.max_num_seqs)) {
    return limit("items", batch.items.size(), options.max_num_seqs);
  }
  if (token_count > static_cast<size_t>(options.max_batched_tokens)) {
    return limit("tokens", token_count, options.max_batched_tokens);
  }
  TROUPE_RETURN_IF_ERROR(check_copies(batch));
  if (wanted.rows.size() != sampled_count) {
    return absl::InternalError(
        absl::StrCat("batch with ", sampled_count, " items that sample, but ", wanted.rows.size(), " draws"));
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
  const Status ids_status = check_ids(item.ids, last_draws().count);
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

Status ModelRunner::launch(const Batch& batch, const StepDraws& draws) {
  Impl& m = *impl_;
  TROUPE_RETURN_IF_ERROR(m.check_batch(batch, draws));
  if (m.launched - m.collected > 1) return absl::InternalError("two steps are under way already");
  m.buffers.fill(batch.items, m.options.block_size);
  for (const KvCopy& copy : batch.copies) m.buffers.copies.push_back({copy.from, copy.to});
  const Impl::Draws& last = m.last_draws();
  const Tensor drawn =
      last.count > 0 ? Tensor::make(last.tokens->data(), DType::kInt32, {last.count}) : Tensor{};
  const Step step = m.buffers.step(drawn);
  const Context context = m.context(step);
  Impl::Draws& own = m.draws_of(m.launched);
  own.count = static_cast<int64_t>(m.buffers.rows.size());
  {
    const StepScope scope(*m.backend, kind_of(batch, draws));
    m.backend->copy_blocks(m.buffers.copies);
    m.model->forward(context);
    // No item samples if all chunks end before their prompt's last token.
    if (own.count > 0) {
      const Tensor logits = m.model->logits(context, m.buffers.rows);
      if (draws.before_draws != nullptr) (*draws.before_draws)();
      m.draw(logits, draws, drawn);
    }
  }
  if (own.count > 0) {
    own.readback->start(own.tokens->data(), static_cast<size_t>(own.count) * sizeof(TokenId));
  }
  ++m.launched;
  return absl::OkStatus();
}

StepOutput ModelRunner::collect() {
  Impl& m = *impl_;
  const Impl::Draws& oldest = m.draws_of(m.collected++);
  if (oldest.count == 0) return {};
  const auto* const tokens = static_cast<const TokenId*>(oldest.readback->wait());
  return {{tokens, static_cast<size_t>(oldest.count)},
          Tensor::make(m.host_logits.get(), DType::kFloat32, {oldest.shown_count, m.config.vocab_size})};
}

StatusOr<StepOutput> ModelRunner::run(const Batch& batch, const StepDraws& draws) {
  TROUPE_RETURN_IF_ERROR(launch(batch, draws));
  return collect();
}

bool ModelRunner::runs_ahead() const {
  return !impl_->backend->host_memory();
}

void ModelRunner::visit_rows(int32_t first, int32_t count, const RowVisitor& visit) {
  Impl& m = *impl_;
  const auto vocab = static_cast<size_t>(m.config.vocab_size);
  const Step step = m.buffers.step();
  const Context context = m.context(step);
  m.for_each_part(first, count, [&](std::span<const int32_t> rows) {
    const Tensor logits = m.logits(context, rows);
    for (size_t i = 0; i < rows.size(); ++i) visit(rows[i], {logits.as<float>() + i * vocab, vocab});
  });
}

void ModelRunner::visit_hidden(int32_t first, int32_t count, const RowVisitor& visit) {
  Impl& m = *impl_;
  const auto width = static_cast<size_t>(m.config.hidden_size);
  const Step step = m.buffers.step();
  const Context context = m.context(step);
  std::vector<std::byte> bytes;
  std::vector<float> row(width);
  m.for_each_part(first, count, [&](std::span<const int32_t> rows) {
    Tensor hidden = m.model->hidden(context, rows);
    bytes.resize(hidden.bytes());
    m.backend->download(bytes.data(), hidden.data, hidden.bytes());
    hidden.data = bytes.data();
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < width; ++j) row[j] = element(hidden, static_cast<int64_t>(i * width + j));
      visit(rows[i], row);
    }
  });
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
  // Checks every id, also the last, which no chunk may hold: it indexes the logits.
  TROUPE_RETURN_IF_ERROR(m.check_ids(ids, /*drawn_count=*/0));
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
    m.buffers.fill({&item, 1}, block_size);
    const Step step = m.buffers.step();
    const Context context = m.context(step);
    {
      const StepScope scope(*m.backend, StepKind::kMixed);
      m.model->forward(context);
    }
    // The very last id has no successor to score.
    const int32_t scored = std::min(count, total - 1 - start);
    visit_rows(0, scored, [&](int32_t row, std::span<const float> logits) {
      result.push_back(log_probability(logits, ids[static_cast<size_t>(start + row) + 1]));
    });
  }
  return result;
}

}  // namespace troupe
