#include "kernels/cuda/step/device_draws.h"

#include <cstring>

#include "kernels/draw_weights.h"
#include "kernels/sampler_chain.h"

namespace troupe::cuda {

void device_draws(std::span<const SampleRow> rows, const DrawPlaces& places, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits) {
  draws.clear();
  edits.clear();
  int32_t* out = places.out;
  for (const SampleRow& row : rows) {
    const auto first_edit = static_cast<int32_t>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    const bool has_chain = row.chain != nullptr;
    if (has_chain && row.chain->has_late_penalties()) {  // the biases alone are edits of the row
      for (auto edit = edits.begin() + first_edit; edit != edits.end(); ++edit) edit->emitted_count = -1;
    }
    const DrawParams& draw = row.draw;
    draws.push_back({.random = counter_bits(draw.seed, draw.position),
                     .scale = draw.temperature > 0 && !has_chain ? draw_scale(draw.temperature) : 0.0f,
                     .top_k = draw.top_k,
                     .top_p = draw.top_p,
                     .min_p = draw.min_p,
                     .penalties = row.penalties,
                     .first_edit = first_edit,
                     .end_edit = static_cast<int32_t>(edits.size()),
                     .last_drawn = row.last_drawn >= 0 ? places.drawn + row.last_drawn : nullptr,
                     .out = out++});
  }
}

void draw_by_chains(Backend& backend, const SampleParams& params) {
  const auto vocab = static_cast<size_t>(params.logits.shape[1]);
  std::vector<float> logits;
  for (size_t s = 0; s < params.rows.size(); ++s) {
    const SampleRow& row = params.rows[s];
    if (row.chain == nullptr) continue;
    logits.resize(vocab);
    backend.download(logits.data(), params.logits.as<const float>() + s * vocab, vocab * sizeof(float));
    const int32_t token = draw_by_chain(logits, row);
    backend.upload(params.out.as<int32_t>() + s, &token, sizeof(token));
  }
}

void device_ids(std::span<const int32_t> ids, const int32_t* drawn, std::vector<int32_t>& out) {
  constexpr size_t kWords = sizeof(drawn) / sizeof(int32_t);
  static_assert(kWords == 2, "an even place is an address's");
  out.assign(ids.begin(), ids.end());
  if (out.size() % kWords != 0) out.push_back(0);
  out.resize(out.size() + kWords);
  std::memcpy(out.data() + out.size() - kWords, &drawn, sizeof(drawn));
}

}  // namespace troupe::cuda
