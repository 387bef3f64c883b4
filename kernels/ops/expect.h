#pragma once

// The words of the ops' checks: each ends the process with the op's and the operand's name, and with both
// shapes. Every backend checks an op's parameters first, so a mismatch dies at the boundary and the loops
// behind it need no checks.

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/tensor.h"

namespace troupe::expect {

// `actual` has `expected`'s shape and type.
void same(const char* op, const char* name, const Tensor& actual, const Tensor& expected);
void shape(const char* op, const char* name, const Tensor& actual, DType dtype,
           std::initializer_list<int64_t> expected);
void rank2(const char* op, const char* name, const Tensor& tensor);
// An operand that may be left out: empty, or (count) float32.
void optional(const char* op, const char* name, const Tensor& actual, int64_t length);
// Draws of a step, int32; returns how many, 0 where they are left out.
int64_t drawn(const char* op, const Tensor& draws);
void count(const char* op, const char* name, size_t actual, int64_t expected);
// 0 <= value < limit
void index(const char* op, const char* name, int64_t value, int64_t limit);

}  // namespace troupe::expect
