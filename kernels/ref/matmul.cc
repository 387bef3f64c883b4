// out[t][n] = Σ_k x[t][k] · weight[n][k] + bias[n], k ascending, in float32; products of bfloat16 are exact
// in float32. By an int8 weight: int8.h.

#include "kernels/int8.h"
#include "kernels/ref/ref.h"

namespace troupe::ref {
namespace {

float as_float(float value) {
  return value;
}
float as_float(BFloat16 value) {
  return to_float(value);
}

// x: (K), w: (K)
template <typename T>
float dot(const T* x, const T* w, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += as_float(x[k]) * as_float(w[k]);
  return sum;
}

template <typename T>
void matmul_as(const MatmulParams& params, const Tensor& weight) {
  const int64_t outs = weight.shape[0];
  const int64_t ins = weight.shape[1];
  for (int64_t t = 0; t < params.x.shape[0]; ++t) {
    for (int64_t n = 0; n < outs; ++n) {
      float value = dot(params.x.as<const T>() + t * ins, weight.as<const T>() + n * ins, ins);
      if (!params.bias.empty()) value += element(params.bias, n);
      if (params.accumulate) value += element(params.out, t * outs + n);
      set_element(params.out, t * outs + n, value);
    }
  }
}

// Row `row` of a tensor in float32.
std::vector<float> float_row(const Tensor& tensor, int64_t row) {
  std::vector<float> values(static_cast<size_t>(tensor.shape[1]));
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = element(tensor, row * tensor.shape[1] + static_cast<int64_t>(k));
  }
  return values;
}

void matmul_int8(const MatmulParams& params, const Int8Weight& weight) {
  const int64_t outs = weight.rows();
  const int64_t ins = weight.columns();
  std::vector<int8_t> x(static_cast<size_t>(ins));
  for (int64_t t = 0; t < params.x.shape[0]; ++t) {
    const float x_scale = quantize_row(float_row(params.x, t).data(), ins, x.data());
    for (int64_t n = 0; n < outs; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < ins; ++k) sum += x[static_cast<size_t>(k)] * weight.row(n)[k];
      float value = static_cast<float>(sum) * (x_scale * weight.scale(n));
      if (!params.bias.empty()) value += element(params.bias, n);
      if (params.accumulate) value += element(params.out, t * outs + n);
      set_element(params.out, t * outs + n, value);
    }
  }
}

}  // namespace

Int8Weight::Int8Weight(const Tensor& weight)
    : columns_(weight.shape[1]),
      values_(static_cast<size_t>(weight.elements())),
      scales_(static_cast<size_t>(weight.shape[0])) {
  for (int64_t n = 0; n < rows(); ++n) {
    scales_[static_cast<size_t>(n)] =
        quantize_row(float_row(weight, n).data(), columns_, values_.data() + n * columns_);
  }
}

void matmul(const MatmulParams& params) {
  if (params.weight->format() == WeightFormat::kInt8) {
    return matmul_int8(params, static_cast<const Int8Weight&>(*params.weight));
  }
  const Tensor& weight = static_cast<const DenseWeight*>(params.weight)->values();
  if (weight.dtype == DType::kBFloat16) {
    matmul_as<BFloat16>(params, weight);
  } else {
    matmul_as<float>(params, weight);
  }
}

}  // namespace troupe::ref
