#pragma once

// A way to multiply activations by packed weights. All hold the backend's promise: an output element's bits
// depend on its row of x and its row of the weight, on nothing else.
//
// - our own panels: bfloat16 with AVX512-BF16, where they read weights faster than oneDNN's kernels and
//   multiply as fast, or nearly; and every type on machines without AVX-512, where oneDNN's rows depend on
//   the batch.
// - our own panels for tile registers: bfloat16 with AMX, where oneDNN's rows depend on the batch too.
// - oneDNN: float32 with AVX-512.
// - int8: weights packed as WeightFormat::kInt8, whatever the type of the activations.

#include <memory>

#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"

namespace troupe::cpu {

class Products {
 public:
  virtual ~Products() = default;
  virtual std::string_view name() const = 0;
  // REQUIRES check_weight(weight). The result belongs to this object's matmul only.
  virtual StatusOr<std::unique_ptr<PackedWeight>> pack(const Tensor& weight) = 0;
  // REQUIRES check_params(params).
  virtual void matmul(const MatmulParams& params) = 0;
  // REQUIRES check_params(params) and weights of this object. False, and nothing done, where the three ops
  // one by one are as good.
  virtual bool gated_mlp(const GatedMlpParams&) { return false; }
};

// Whether oneDNN has its batched-reduce kernels for this type here: the ones whose rows do not depend on the
// batch. False on older processors, or where ONEDNN_MAX_CPU_ISA holds it back.
bool onednn_serves(DType dtype);

// `pool` must outlive the result.
std::unique_ptr<Products> make_onednn_products(DType dtype, ThreadPool& pool);
std::unique_ptr<Products> make_panel_products(DType dtype, CpuIsa isa, ThreadPool& pool);
std::unique_ptr<Products> make_tile_products(CpuIsa isa, ThreadPool& pool);  // bfloat16 with AMX

std::unique_ptr<Products> make_int8_products(CpuIsa isa, ThreadPool& pool);
std::unique_ptr<Products> make_int8_tile_products(CpuIsa isa, ThreadPool& pool);  // with AMX

// The fastest products of this instruction set and type.
std::unique_ptr<Products> make_products(DType dtype, CpuIsa isa, ThreadPool& pool);

}  // namespace troupe::cpu
