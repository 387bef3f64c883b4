// What a backend need not write itself. Apart from make_backend(): a module has these, but not the other
// backends.

#include <cstring>

#include "kernels/kernels.h"

namespace troupe {

void Backend::upload(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Backend::download(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Backend::gated_mlp(const GatedMlpParams& params) {
  matmul({.x = params.x, .weight = params.gate_up, .out = params.mixed, .bias = params.gate_up_bias});
  silu_mul({.gate_up = params.mixed, .out = params.gated});
  matmul({.x = params.gated,
          .weight = params.down,
          .out = params.sum,
          .accumulate = true,
          .bias = params.down_bias});
}

}  // namespace troupe
