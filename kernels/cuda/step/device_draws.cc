#include "kernels/cuda/step/device_draws.h"

#include <cstring>

#include "kernels/draw_weights.h"

namespace troupe::cuda {

void device_draws(std::span<const SampleRow> rows, const DrawPlaces& places, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits) {
  draws.clear();
  edits.clear();
  int32_t* out = places.out;
  for (const SampleRow& row : rows) {
    const auto first_edit = static_cast<int32_t>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    const DrawParams& draw = row.draw;
    draws.push_back({.random = counter_bits(draw.seed, draw.position),
                     .scale = draw.temperature > 0 ? draw_scale(draw.temperature) : 0.0f,
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

void device_ids(std::span<const int32_t> ids, const int32_t* drawn, std::vector<int32_t>& out) {
  constexpr size_t kWords = sizeof(drawn) / sizeof(int32_t);
  static_assert(kWords == 2, "an even place is an address's");
  out.assign(ids.begin(), ids.end());
  if (out.size() % kWords != 0) out.push_back(0);
  out.resize(out.size() + kWords);
  std::memcpy(out.data() + out.size() - kWords, &drawn, sizeof(drawn));
}

}  // namespace troupe::cuda
