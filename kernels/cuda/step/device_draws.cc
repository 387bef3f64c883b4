#include "kernels/cuda/step/device_draws.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "kernels/draw_weights.h"
#include "kernels/sampler_chain.h"

namespace troupe::cuda {

namespace {

// A row takes some tenths of a millisecond, a thread's start a twentieth of one.
constexpr size_t kRowsOfThread = 4, kThreadsMax = 8;

}  // namespace

void device_draws(std::span<const SampleRow> rows, const DrawPlaces& places, std::vector<DeviceDraw>& draws,
                  std::vector<LogitEdit>& edits) {
  draws.clear();
  edits.clear();
  int32_t* out = places.out;
  for (const SampleRow& row : rows) {
    const auto first_edit = static_cast<int32_t>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    if (row.chain != nullptr && row.chain->has_late_penalties()) {  // the biases alone are edits of the row
      for (auto edit = edits.begin() + first_edit; edit != edits.end(); ++edit) edit->emitted_count = -1;
    }
    const DrawParams& draw = row.draw;
    draws.push_back(
        {.random = counter_bits(draw.seed, draw.position),
         .scale = draw.temperature > 0 && !row.is_drawn_by_host() ? draw_scale(draw.temperature) : 0.0f,
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

void draw_on_host(Backend& backend, const SampleParams& params) {
  std::vector<size_t> places;  // of the rows that it is to draw from
  for (size_t s = 0; s < params.rows.size(); ++s) {
    if (params.rows[s].is_drawn_by_host()) places.push_back(s);
  }
  if (places.empty()) return;
  const auto vocab = static_cast<size_t>(params.logits.shape[1]);
  const size_t first = places.front(), count = places.back() + 1 - first;
  const auto logits = std::make_unique_for_overwrite<float[]>(count * vocab);
  backend.download(logits.get(), params.logits.as<const float>() + first * vocab,
                   count * vocab * sizeof(float));
  std::vector<int32_t> tokens(count);
  backend.download(tokens.data(), params.out.as<const int32_t>() + first, count * sizeof(int32_t));
  std::atomic<size_t> next = 0;
  const auto draw = [&] {
    for (size_t i = next++; i < places.size(); i = next++) {
      const size_t at = places[i] - first;
      const SampleRow& row = params.rows[places[i]];
      const std::span<float> of_row(logits.get() + at * vocab, vocab);
      apply_mask(of_row, row.mask);
      tokens[at] = row.chain != nullptr ? draw_by_chain(of_row, row) : draw_token(of_row, row.draw);
    }
  };
  std::vector<std::thread> others;
  const size_t threads =
      std::min(places.size() / kRowsOfThread, size_t{std::thread::hardware_concurrency()} / 2);
  for (size_t i = 1; i < std::min(threads, kThreadsMax); ++i) others.emplace_back(draw);
  draw();
  for (std::thread& other : others) other.join();
  backend.upload(params.out.as<int32_t>() + first, tokens.data(), count * sizeof(int32_t));
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
