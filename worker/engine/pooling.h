#pragma once

// Makes one vector of the hidden states of a prompt's tokens. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "common/api/embeddings.h"

namespace troupe {

struct PoolingParams {
  Pooling pooling = Pooling::kLast;
  bool normalize = true;
};

// Takes the rows in the order of their tokens: of the last one alone, or of all. Sums in double, one row
// after another, so the vector does not depend on the steps that the rows came from.
class Pooler {
 public:
  explicit Pooler(PoolingParams params) : params_(params) {}
  // `row`: (D), of as many numbers each time.
  void add(std::span<const float> row);
  // The vector (D), of length 1 where that is wanted; zeros stay zeros. Empty: there was no row.
  std::vector<float> vector() const;

 private:
  PoolingParams params_;
  std::vector<double> sum_;
  int64_t count_ = 0;
};

}  // namespace troupe
