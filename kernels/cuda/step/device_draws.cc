#include "kernels/cuda/step/device_draws.h"

#include "kernels/draw_weights.h"

namespace troupe::cuda {

void device_draws(std::span<const SampleRow> rows, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits) {
  draws.clear();
  edits.clear();
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
                     .last_drawn = row.last_drawn});
  }
}

}  // namespace troupe::cuda
