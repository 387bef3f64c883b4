#include "kernels/cpu/products.h"

#include "kernels/cpu/isa.h"

namespace troupe::cpu {

std::unique_ptr<Products> make_products(DType dtype, CpuIsa isa, ThreadPool& pool) {
  // Not oneDNN: with AMX its rows change their bits with the number of their neighbours.
  if (dtype == DType::kBFloat16 && isa_includes(isa, CpuIsa::kAmx)) return make_tile_products(isa, pool);
  if (dtype == DType::kFloat32 && isa_includes(isa, CpuIsa::kAvx512) && onednn_serves(dtype))
    return make_onednn_products(dtype, pool);
  return make_panel_products(dtype, isa, pool);
}

}  // namespace troupe::cpu
