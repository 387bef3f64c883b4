#pragma once

// The contents of the stand-in's descriptors (cublasLt.h), and how attributes are read and written.

#include <cstring>

#include "tests/kernels/emulated/cublas_lt/cublas_lt_algorithms.h"

namespace troupe::emulated {

// A cublasLtMatmulPreferenceOpaque_t's contents.
struct LtPreference {
  uint64_t workspace_bytes;
  uint32_t reduction_mask;
  uint32_t a, b, c, d;  // alignments
};
inline constexpr LtPreference kLtDefaultPreference{0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256};

// Contents of a descriptor, whose words are the caller's to keep.
template <class Contents, class Opaque>
Contents contents_of(const Opaque* opaque) {
  static_assert(sizeof(Contents) <= sizeof(Opaque));
  Contents contents;
  std::memcpy(&contents, opaque, sizeof(contents));
  return contents;
}
template <class Contents, class Opaque>
void keep(Opaque* opaque, const Contents& contents) {
  std::memcpy(opaque, &contents, sizeof(contents));
}
template <class Contents, class Opaque>
cublasStatus_t create(Opaque** opaque, const Contents& contents) {
  if (opaque == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *opaque = new Opaque{};
  keep(*opaque, contents);
  return CUBLAS_STATUS_SUCCESS;
}

// An attribute's value is as long as what keeps it.
template <class Contents, class Opaque, class Field>
cublasStatus_t set(Opaque* opaque, Field Contents::*field, const void* value, size_t bytes) {
  if (opaque == nullptr || value == nullptr || bytes != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  auto contents = contents_of<Contents>(opaque);
  std::memcpy(&(contents.*field), value, bytes);
  keep(opaque, contents);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Value>
cublasStatus_t get(Value own, void* value, size_t bytes, size_t* written) {
  if (bytes == 0) {
    if (written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  } else {
    if (value == nullptr || bytes != sizeof(own)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, &own, sizeof(own));
  }
  if (written != nullptr) *written = sizeof(own);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace troupe::emulated
