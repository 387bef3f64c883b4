#pragma once

// The measure of a decode step: a plain loop that reads as many bytes, as fast as one core can.

#include <immintrin.h>

#include <cstdint>

namespace troupe::bench {

__attribute__((target("avx512f"))) inline void read_avx512(const char* data, int64_t bytes) {
  __m512i a = _mm512_setzero_si512();
  __m512i b = a;
  __m512i c = a;
  __m512i d = a;
  for (int64_t i = 0; i < bytes; i += 256) {
    a = _mm512_xor_si512(a, _mm512_load_si512(data + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(data + i + 64));
    c = _mm512_xor_si512(c, _mm512_load_si512(data + i + 128));
    d = _mm512_xor_si512(d, _mm512_load_si512(data + i + 192));
  }
  a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
  asm volatile("" : : "v"(a));
}

inline void read_sse(const char* data, int64_t bytes) {
  __m128i sum = _mm_setzero_si128();
  for (int64_t i = 0; i < bytes; i += 16) {
    sum = _mm_xor_si128(sum, _mm_load_si128(reinterpret_cast<const __m128i*>(data + i)));
  }
  asm volatile("" : : "x"(sum));
}

// Reads `bytes` (a multiple of 256) at `data`, 64-byte aligned.
inline void read(const char* data, int64_t bytes) {
  if (__builtin_cpu_supports("avx512f")) {
    read_avx512(data, bytes);
  } else {
    read_sse(data, bytes);
  }
}

}  // namespace troupe::bench
