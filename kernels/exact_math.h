#pragma once

// Logarithm and exponential of double precision from sums, products and quotients alone: the same bits on
// every machine and with every C library, which a thread's draw may hang on. Relative error below 1e-14.

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace troupe {

// REQUIRES: 0 < x < infinity, not denormal
TROUPE_HOST_DEVICE inline double exact_log(double x) {
  int exponent = 0;
  double m = frexp(x, &exponent);  // in [1/2, 1); exact, as every multiple of a power of two
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)); |s| < 0.172, so the term of s^19 is below 2e-16.
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double sum = 0;
  for (int n = 19; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return 2 * s * sum + exponent * 0.69314718055994531;
}

// 0 below -700, infinity above 700.
TROUPE_HOST_DEVICE inline double exact_exp(double x) {
  if (!(x > -700)) return 0;
  if (x > 700) return INFINITY;
  const double n = floor(x * 1.4426950408889634 + 0.5);
  // ln 2 in two parts, the first of few bits: n times it is exact.
  const double r = (x - n * 0.693145751953125) - n * 1.42860682030941723e-6;
  double sum = 1;
  for (int k = 14; k >= 1; --k) sum = 1 + sum * r / k;
  return ldexp(sum, static_cast<int>(n));
}

// x^y. REQUIRES: x >= 0, y >= 0
TROUPE_HOST_DEVICE inline double exact_pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  return x > 0 ? exact_exp(y * exact_log(x)) : 0;
}

}  // namespace troupe
