#pragma once

// Maps by which the tensor copy engine finds matrices of bfloat16 (hopper.cuh's copy_box()): in boxes of 64
// columns, 128 bytes, swizzled. What of a box is outside of its matrix reads as 0.

#include <cuda.h>

#include <cstdint>
#include <string>

#include "common/core/status.h"

namespace troupe::cuda {

inline constexpr int kBoxColumns = 64;
inline constexpr int kBoxRowsMax = 256;

// `planes` matrices behind one another, (rows, columns) each, row-major.
struct BoxedMatrix {
  const void* data = nullptr;  // at a multiple of 16 bytes
  int64_t columns = 0;         // a multiple of 8
  int64_t rows = 0;
  int box_rows = 0;    // at most kBoxRowsMax
  int64_t planes = 1;  // all of them are in each box
  bool operator<(const BoxedMatrix& other) const;
};

// kUnavailable, with the reason, where the driver has or makes none. `what` names the matrix in it.
StatusOr<CUtensorMap> make_tensor_map(const std::string& what, const BoxedMatrix& matrix);

}  // namespace troupe::cuda
