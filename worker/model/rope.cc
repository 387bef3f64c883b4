// Transformers computes the frequencies and the angles in float32, and models are trained with that rounding:
// at position 2,000 a float32 angle is off by up to 6e-5 rad. Both products are therefore rounded to float32
// here, too; only the cosine is taken in double, where its own error vanishes.

#include "worker/model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe {

namespace {

constexpr double kPi = 3.14159265358979323846;

std::vector<float> plain_frequencies(double theta, int64_t head_dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    frequencies.push_back(1.0f / static_cast<float>(std::pow(theta, double{exponent})));
  }
  return frequencies;
}

double dynamic_theta(const ModelConfig& config, int64_t position_count) {
  const auto own = static_cast<double>(config.max_position_embeddings);
  const double stretch = config.rope.factor * std::max(1.0, static_cast<double>(position_count) / own) -
                         (config.rope.factor - 1);
  const auto dim = static_cast<double>(config.head_dim);
  return config.rope.theta * std::pow(stretch, dim / (dim - 2));
}

// Divides the frequencies of long waves by the factor, keeps short waves, and blends those between.
void scale_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const auto original = static_cast<float>(rope.original_max_position_embeddings);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  for (float& frequency : frequencies) {
    const float wave = static_cast<float>(2 * kPi) / frequency;
    if (wave < original / high) continue;
    if (wave > original / low) {
      frequency /= factor;
      continue;
    }
    const float smooth = (original / wave - low) / (high - low);
    frequency = (1 - smooth) * frequency / factor + smooth * frequency;
  }
}

// Keeps dimensions that turn more than beta_fast times within the original length, divides the frequencies of
// those that turn less than beta_slow times by the factor, and ramps between.
void scale_yarn(const ModelConfig& config, std::vector<float>& frequencies) {
  const RopeConfig& rope = config.rope;
  const auto dim = static_cast<double>(config.head_dim);
  const auto dimension_of = [&](double turns) {
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    return dim * std::log(original / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>((static_cast<double>(i) - low) / (high - low));
    const float keep = 1 - std::clamp(ramp, 0.0f, 1.0f);
    const float slowed = frequencies[i] / static_cast<float>(rope.factor);
    frequencies[i] = slowed * (1 - keep) + frequencies[i] * keep;
  }
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config, int64_t position_count) {
  const RopeConfig& rope = config.rope;
  const double theta = rope.type == RopeType::kDynamic ? dynamic_theta(config, position_count) : rope.theta;
  std::vector<float> frequencies = plain_frequencies(theta, config.head_dim);
  if (rope.type == RopeType::kLinear) {
    for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
  }
  if (rope.type == RopeType::kLlama3) scale_llama3(rope, frequencies);
  if (rope.type == RopeType::kYarn) scale_yarn(config, frequencies);
  return frequencies;
}

void fill_rope_table(const ModelConfig& config, const Tensor& table) {
  const std::vector<float> frequencies = rope_frequencies(config, table.shape[0]);
  const auto factor = config.rope.type == RopeType::kYarn ? config.rope.attention_factor : 1.0;
  const auto half = static_cast<int64_t>(frequencies.size());
  for (int64_t position = 0; position < table.shape[0]; ++position) {
    float* const row = table.as<float>() + position * config.head_dim;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::cos(double{angle}) * factor);
      row[half + i] = static_cast<float>(std::sin(double{angle}) * factor);
    }
  }
}

}  // namespace troupe
