// config.json, then (after a line of "---") generation_config.json: either refused, or every size is one the
// model code can multiply without a thought.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "worker/model/config.h"
#include "worker/model/rope.h"

namespace {

void check(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n---\n";
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find(kSeparator);
  const auto config = troupe::parse_json(text.substr(0, cut));
  if (!config.ok()) return 0;
  const bool has_generation = cut != std::string_view::npos;
  troupe::bj::value generation;
  if (has_generation) {
    const auto parsed = troupe::parse_json(text.substr(cut + kSeparator.size()));
    if (!parsed.ok()) return 0;
    generation = *parsed;
  }
  const auto model = troupe::parse_model_config(*config, has_generation ? &generation : nullptr);
  if (!model.ok()) {
    check(!model.status().message().empty());
    return 0;
  }
  check(model->vocab_size > 0 && model->hidden_size > 0 && model->intermediate_size > 0 && model->layers > 0);
  check(model->kv_heads > 0 && model->heads % model->kv_heads == 0);
  check(model->head_dim >= 2 && model->head_dim % 2 == 0);
  check(model->vocab_size * model->hidden_size > 0 && model->max_position_embeddings * model->head_dim > 0);
  check(model->rms_norm_eps >= 0 && model->sliding_window >= 0);
  check(model->position_count_max >= model->max_position_embeddings);
  check(model->position_count_max <= troupe::kPositionsMax);
  // Every rope type gives frequencies that are numbers, at any length allowed.
  if (model->rope.type != troupe::RopeType::kNone) {
    for (const int64_t positions : {int64_t{1}, model->position_count_max}) {
      for (const float frequency : troupe::rope_frequencies(*model, positions)) check(!std::isnan(frequency));
    }
  }
  for (const int32_t id : model->eos_token_ids) check(id >= 0 && id < model->vocab_size);
  return 0;
}
