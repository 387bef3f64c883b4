#pragma once

// The stand-in's arithmetic: in float32, each sum in the order of the depth, a split's by itself.

#include "tests/kernels/emulated/cublas_lt/cublas_lt_algorithms.h"

namespace troupe::emulated {

struct LtPlaces {
  const void *a, *b, *c;  // c: null where beta is 0
  void *d, *workspace;
};

// Enqueues the algorithm's kernels, and a memset where it has one. REQUIRES: lt_takes() it, the places are
// aligned, and the workspace is large enough.
void lt_enqueue(cudaStream_t stream, const LtAlgorithm& algorithm, const LtProblem& problem,
                const LtPlaces& places, float alpha, float beta);

}  // namespace troupe::emulated
