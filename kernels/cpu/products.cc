#include "kernels/cpu/products.h"

#include <cpuid.h>

#include "kernels/cpu/isa.h"

namespace troupe::cpu {

namespace {

bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22;  // of edx of leaf 7
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0;
}

}  // namespace

std::unique_ptr<Products> make_products(DType dtype, CpuIsa isa, ThreadPool& pool) {
  const bool bfloat16 = dtype == DType::kBFloat16;
  const CpuIsa needed = bfloat16 ? CpuIsa::kAvx512Bf16 : CpuIsa::kAvx512;
  const bool faster = !bfloat16 || has_amx_bf16();
  if (faster && isa_includes(isa, needed) && onednn_serves(dtype)) return make_onednn_products(dtype, pool);
  return make_panel_products(dtype, isa, pool);
}

}  // namespace troupe::cpu
