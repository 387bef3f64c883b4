#include "worker/model/warm_up.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

// `tokens` of a step: as decodes while they are few enough, then as long prompts.
struct Shape {
  int64_t requests;
  int64_t tokens_each;
  int64_t blocks_each;  // no two write to one block
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

Status run(const Shape& shape, ModelRunner& runner) {
  const std::vector<TokenId> ids(static_cast<size_t>(shape.tokens_each), 0);
  std::vector<BlockId> blocks(static_cast<size_t>(shape.blocks_each * shape.requests));
  std::iota(blocks.begin(), blocks.end(), 0);
  Batch batch;
  for (int64_t i = 0; i < shape.requests; ++i) {
    BatchItem& item = batch.items.emplace_back();
    item.ids = ids;
    item.count = static_cast<int32_t>(ids.size());
    item.samples = true;
    item.blocks = std::span(blocks).subspan(static_cast<size_t>(i * shape.blocks_each),
                                            static_cast<size_t>(shape.blocks_each));
  }
  const std::vector<SampleRow> draws(batch.items.size(), {.draw = {.top_k = 40, .top_p = 0.9f}});
  return runner.run(batch, {draws, {}}).status();
}

}  // namespace

Status warm_up(ModelRunner& runner, const RunnerOptions& options) {
  const int64_t largest =
      std::min<int64_t>(options.max_batched_tokens, int64_t{runner.block_count()} * options.block_size);
  for (int64_t tokens = 1;; tokens = std::min(2 * tokens, largest)) {
    TROUPE_RETURN_IF_ERROR(run(shape_of(tokens, runner, options), runner));
    if (tokens == largest) return absl::OkStatus();
  }
}

}  // namespace troupe
