#include "kernels/cuda/step/device_draws.h"

#include <algorithm>
#include <cstring>

#include "kernels/draw_weights.h"
#include "kernels/sampler_chain.h"

namespace troupe::cuda {

void DeviceDraws::fill(const SampleParams& params, const DrawPlaces& places) {
  rows.clear();
  chains.clear();
  edits.clear();
  masks.clear();
  const auto vocab = static_cast<int32_t>(params.logits.shape[1]);
  const auto words = static_cast<size_t>((vocab + 31) / 32);
  int32_t* out = places.out;
  for (const SampleRow& row : params.rows) {
    const auto first_edit = static_cast<int32_t>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    const DrawParams& draw = row.draw;
    DeviceDraw& of_row = rows.emplace_back(
        DeviceDraw{.random = counter_bits(draw.seed, draw.position),
                   .scale = draw.temperature > 0 ? draw_scale(draw.temperature) : 0.0f,
                   .top_k = draw.top_k,
                   .top_p = draw.top_p,
                   .min_p = draw.min_p,
                   .penalties = row.penalties,
                   .first_edit = first_edit,
                   .end_edit = static_cast<int32_t>(edits.size()),
                   .first_mask_word = -1,
                   .edits_are_late = row.chain != nullptr && row.chain->has_late_penalties(),
                   .has_chain = row.chain != nullptr && draw.temperature > 0,
                   .last_drawn = row.last_drawn >= 0 ? places.drawn + row.last_drawn : nullptr,
                   .out = out++});
    if (of_row.edits_are_late) sort_late_edits(std::span(edits).subspan(static_cast<size_t>(first_edit)));
    if (!row.mask.empty()) {
      of_row.first_mask_word = static_cast<int32_t>(masks.size());
      masks.insert(masks.end(), row.mask.begin(), row.mask.begin() + static_cast<std::ptrdiff_t>(words));
    }
    if (!of_row.has_chain) continue;
    DeviceChain& chain =
        chains.emplace_back(DeviceChain{chain_row(row, vocab), static_cast<int32_t>(rows.size() - 1)});
    chain.row.first_count = std::min(chain.row.first_count, vocab);
  }
}

void take_mirostat(Backend& backend, const SampleParams& params, std::span<const DeviceChain> chains,
                   const float* mus) {
  const auto has_mirostat = [](const DeviceChain& chain) { return chain.row.chain.mirostat != 0; };
  if (std::none_of(chains.begin(), chains.end(), has_mirostat)) return;
  std::vector<float> moved(chains.size());
  backend.download(moved.data(), mus, moved.size() * sizeof(float));
  for (size_t i = 0; i < chains.size(); ++i) {
    if (!has_mirostat(chains[i])) continue;
    *params.rows[static_cast<size_t>(chains[i].place)].mirostat_mu = moved[i];
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
