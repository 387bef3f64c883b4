#include "worker/model/guidance.h"

#include <cmath>
#include <limits>

#include "worker/model/log_softmax.h"

namespace troupe {

void guide_logits(std::span<float> logits, std::span<const float> negative, double scale) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  const double total = LogSoftmax(logits).log_total();
  const double negative_total = LogSoftmax(negative).log_total();
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = double{logits[i]} - total;
    const double n = double{negative[i]} - negative_total;
    const bool is_led = p != kMinusInfinity && n != kMinusInfinity;
    logits[i] = static_cast<float>(is_led ? n + scale * (p - n) : p);
  }
}

}  // namespace troupe
