#include "kernels/ops/sample.h"

#include <string>

#include "kernels/check.h"
#include "kernels/draw_weights.h"
#include "kernels/ops/expect.h"

namespace troupe {

void check_params(const SampleParams& params) {
  constexpr const char* kOp = "sample";
  expect::rank2(kOp, "logits", params.logits);
  const auto count = static_cast<int64_t>(params.rows.size());
  const int64_t vocab = params.logits.shape[1];
  expect::shape(kOp, "logits", params.logits, DType::kFloat32, {count, vocab});
  expect::shape(kOp, "out", params.out, DType::kInt32, {count});
  if (vocab < 1 || vocab > kDrawVocabMax) check_failed(kOp, "logits of " + std::to_string(vocab) + " tokens");
  const int64_t drawn_count = expect::drawn(kOp, params.drawn);
  if (drawn_count > 0 && params.drawn.data == params.out.data) check_failed(kOp, "drawn is out");
  for (const SampleRow& row : params.rows) {
    for (const LogitEdit& edit : row.edits) expect::index(kOp, "edits", edit.token, vocab);
    if (row.last_drawn >= 0) expect::index(kOp, "last_drawn", row.last_drawn, drawn_count);
    if (!row.mask.empty()) expect::index(kOp, "mask", vocab - 1, static_cast<int64_t>(row.mask.size()) * 32);
    if (row.chain == nullptr) continue;
    if (row.chain->has_late_penalties() && row.last_drawn >= 0)
      check_failed(kOp, "penalties behind a cut need the last token");
    if (row.chain->mirostat != 0 && row.mirostat_mu == nullptr) check_failed(kOp, "mirostat without its mu");
  }
}

}  // namespace troupe
