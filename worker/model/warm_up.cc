#include "worker/model/warm_up.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/rows_bucket.h"

namespace troupe {

namespace {

// Spreads a step's `tokens`: over decodes while they are few enough, else over long prompts.
struct Shape {
  int64_t requests;
  int64_t tokens_each;
  int64_t blocks_each;  // no two requests write to one block
};

Shape shape_of(int64_t tokens, const ModelRunner& runner, const RunnerOptions& o) {
  const auto parts = [](int64_t count, int64_t of) { return (count + of - 1) / of; };
  const int64_t wanted = tokens <= o.max_num_seqs ? tokens : parts(tokens, runner.max_model_len());
  Shape shape{};
  shape.requests = std::min<int64_t>({wanted, o.max_num_seqs, runner.block_count()});
  shape.blocks_each = runner.block_count() / shape.requests;
  shape.tokens_each = std::min<int64_t>({parts(tokens, shape.requests), shape.blocks_each * o.block_size,
                                         runner.max_model_len(), o.max_batched_tokens / shape.requests});
  return shape;
}

// Tokens before the step's own, and their blocks.
struct Cached {
  int64_t tokens = 0;
  int64_t shared_blocks = 0;  // shared by all requests
};

// Decodes are drawn by the usual cuts; with kChains one of them by a chain of samplers, which is a launch
// more.
enum class Draws : uint8_t { kCuts, kChains };

Status run(const Shape& shape, const Cached& cached, ModelRunner& runner, std::span<const KvCopy> copies = {},
           Draws drawn_by = Draws::kCuts) {
  const std::vector<TokenId> ids(static_cast<size_t>(shape.tokens_each), 0);
  const int64_t table_blocks = cached.shared_blocks + shape.blocks_each;
  std::vector<BlockId> tables(static_cast<size_t>(table_blocks * shape.requests));
  Batch batch;
  batch.copies.assign(copies.begin(), copies.end());
  for (int64_t i = 0; i < shape.requests; ++i) {
    const auto table =
        std::span(tables).subspan(static_cast<size_t>(i * table_blocks), static_cast<size_t>(table_blocks));
    const auto own = table.begin() + cached.shared_blocks;
    std::iota(table.begin(), own, 0);
    std::iota(own, table.end(), static_cast<BlockId>(cached.shared_blocks + i * shape.blocks_each));
    BatchItem& item = batch.items.emplace_back();
    item.ids = ids;
    item.count = static_cast<int32_t>(ids.size());
    item.start = static_cast<int32_t>(cached.tokens);
    item.samples = true;
    item.blocks = table;
  }
  std::vector<SampleRow> draws(batch.items.size(), {.draw = {.top_k = 40, .top_p = 0.9f}});
  const SamplerChain chain{.typical_p = 0.9f};
  if (drawn_by == Draws::kChains) draws.front().chain = &chain;
  return runner.run(batch, {draws, {}}).status();
}

// A device keeps a graph for each number of launches in a decode step. The number depends on how much each
// request reads, on whether several read a shared part at once, and on whether a chain draws.
Status run_decodes(const Shape& shape, ModelRunner& runner, const RunnerOptions& o) {
  const int64_t last = std::min<int64_t>(shape.blocks_each * o.block_size, runner.max_model_len()) - 1;
  TROUPE_RETURN_IF_ERROR(run(shape, {}, runner, {}, Draws::kChains));
  for (const Draws drawn_by : {Draws::kCuts, Draws::kChains})
    TROUPE_RETURN_IF_ERROR(run(shape, {.tokens = last}, runner, {}, drawn_by));
  const int64_t shared =
      std::min<int64_t>(runner.block_count() - shape.requests, (runner.max_model_len() - 1) / o.block_size);
  if (shape.requests < 2 || shared < 1) return absl::OkStatus();
  for (const Draws drawn_by : {Draws::kCuts, Draws::kChains})
    TROUPE_RETURN_IF_ERROR(
        run({shape.requests, shape.tokens_each, 1}, {shared * o.block_size, shared}, runner, {}, drawn_by));
  return absl::OkStatus();
}

// Kernels that no step above has: those of a copied block, and those that put together what a prompt behind
// cached tokens, few queries of many keys, was cut into.
Status run_rest(ModelRunner& runner, const RunnerOptions& o) {
  constexpr int64_t kPromptTokens = 64, kTokensMax = 2048;
  const int64_t blocks = runner.block_count();
  const int64_t room = std::min<int64_t>({blocks * o.block_size, runner.max_model_len(), kTokensMax});
  const int64_t tokens = std::min<int64_t>({kPromptTokens, o.max_batched_tokens, room});
  TROUPE_RETURN_IF_ERROR(run({1, tokens, blocks}, {.tokens = room - tokens}, runner));
  if (blocks < 2) return absl::OkStatus();
  return run({1, 1, blocks}, {}, runner, std::vector<KvCopy>{{.from = 1, .to = 0}});
}

}  // namespace

std::vector<int64_t> warm_up_sizes(int64_t largest, int64_t max_num_seqs) {
  std::vector<int64_t> sizes{std::min(max_num_seqs, largest), largest};
  for (int64_t tokens = 1; tokens < largest; tokens = rows_bucket(tokens + 1)) sizes.push_back(tokens);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Status warm_up(ModelRunner& runner, const RunnerOptions& options) {
  const int64_t largest =
      std::min<int64_t>(options.max_batched_tokens, int64_t{runner.block_count()} * options.block_size);
  for (const int64_t tokens : warm_up_sizes(largest, options.max_num_seqs)) {
    const Shape shape = shape_of(tokens, runner, options);
    TROUPE_RETURN_IF_ERROR(run(shape, {}, runner));
    if (shape.tokens_each == 1) TROUPE_RETURN_IF_ERROR(run_decodes(shape, runner, options));
  }
  return run_rest(runner, options);
}

}  // namespace troupe
