#include "kernels/kernels.h"

#include "kernels/cpu/backend.h"
#include "kernels/ref/backend.h"

namespace troupe {

void Backend::gated_mlp(const GatedMlpParams& params) {
  matmul({.x = params.x, .weight = params.gate_up, .out = params.mixed, .bias = params.gate_up_bias});
  silu_mul({.gate_up = params.mixed, .out = params.gated});
  matmul({.x = params.gated,
          .weight = params.down,
          .out = params.sum,
          .accumulate = true,
          .bias = params.down_bias});
}

StatusOr<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  if (options.dtype != DType::kFloat32 && options.dtype != DType::kBFloat16) {
    return invalid_argument("dtype of a backend must be float32 or bfloat16, got " +
                            std::string(dtype_name(options.dtype)));
  }
  if (options.threads < 1) {
    return invalid_argument("threads must be at least 1, got " + std::to_string(options.threads));
  }
  if (name == "ref") return ref::make_ref_backend(options);
  if (name == "cpu") return cpu::make_cpu_backend(options);
  return invalid_argument("unknown backend '" + std::string(name) + "'; known: ref, cpu");
}

}  // namespace troupe
