// The ops that work on one row at a time: embed, rms_norm, silu_mul, gather_rows, and the copy of KV blocks.

#include <cmath>

#include "kernels/ref/ref.h"

namespace troupe::ref {

void embed(const EmbedParams& params) {
  const int64_t columns = params.table.shape[1];
  for (int64_t t = 0; t < params.out.shape[0]; ++t) {
    for (int64_t d = 0; d < columns; ++d) {
      const float value = element(params.table, params.id_of(t) * columns + d);
      set_element(params.out, t * columns + d, value);
    }
  }
}

void rms_norm(const RmsNormParams& params) {
  const int64_t columns = params.x.shape[1];
  for (int64_t t = 0; t < params.x.shape[0]; ++t) {
    float squares = 0;
    for (int64_t d = 0; d < columns; ++d) {
      const float value = element(params.x, t * columns + d);
      squares += value * value;
    }
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(columns) + params.epsilon);
    for (int64_t d = 0; d < columns; ++d) {
      const float value = element(params.x, t * columns + d) * scale * element(params.weight, d);
      set_element(params.out, t * columns + d, value);
    }
  }
}

void silu_mul(const SiluMulParams& params) {
  const int64_t columns = params.out.shape[1];
  for (int64_t t = 0; t < params.out.shape[0]; ++t) {
    for (int64_t f = 0; f < columns; ++f) {
      const float gate = element(params.gate_up, t * 2 * columns + f);
      const float up = element(params.gate_up, t * 2 * columns + columns + f);
      set_element(params.out, t * columns + f, gate / (1.0f + std::exp(-gate)) * up);
    }
  }
}

void gather_rows(const GatherRowsParams& params) {
  const int64_t columns = params.x.shape[1];
  for (size_t i = 0; i < params.rows.size(); ++i) {
    for (int64_t d = 0; d < columns; ++d) {
      const float value = element(params.x, params.rows[i] * columns + d);
      set_element(params.out, static_cast<int64_t>(i) * columns + d, value);
    }
  }
}

void copy_blocks(std::span<const BlockCopy> copies, DType dtype, const BoundKv& kv) {
  const int64_t count = kv.layout.block_elements();
  const Tensor values = Tensor::make(kv.data, dtype, {kv.block_count, count});
  for (const BlockCopy& copy : copies) {
    for (int64_t i = 0; i < count; ++i) {
      set_element(values, copy.to * count + i, element(values, copy.from * count + i));
    }
  }
}

}  // namespace troupe::ref
