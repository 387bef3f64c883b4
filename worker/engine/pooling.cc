#include "worker/engine/pooling.h"

#include <cmath>

#include "common/core/check.h"

namespace troupe {

void Pooler::add(std::span<const float> row) {
  if (params_.pooling == Pooling::kLast || count_ == 0) {
    sum_.assign(row.begin(), row.end());
    count_ = 1;
    return;
  }
  TROUPE_CHECK(row.size() == sum_.size(), "rows that are pooled have one width");
  for (size_t i = 0; i < row.size(); ++i) sum_[i] += double{row[i]};
  ++count_;
}

std::vector<float> Pooler::vector() const {
  double divisor = static_cast<double>(count_);
  if (params_.normalize) {
    double squares = 0;
    for (const double value : sum_) squares += value * value;
    if (squares > 0) divisor = std::sqrt(squares);  // the mean has the sum's direction
  }
  std::vector<float> result;
  result.reserve(sum_.size());
  for (const double value : sum_) result.push_back(static_cast<float>(value / divisor));
  return result;
}

}  // namespace troupe
