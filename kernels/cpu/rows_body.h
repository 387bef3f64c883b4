// Written once, compiled per instruction set (see math_body.h): the ops that work on one row at a time. All
// of them are bound by memory: 4 to 12 bytes moved per element for a handful of operations.

template <typename T>
inline void rms_norm_to(const NormRow& row, T* out) {
  Vec squares = broadcast(0.0f);
  for (int64_t d = 0; d < row.columns; d += kLanes) {
    const Vec x = load_up_to(row.x + d, row.columns - d);
    squares = fma(x, x, squares);
  }
  const float mean = sum(squares) / static_cast<float>(row.columns);
  const Vec scale = broadcast(1.0f / __builtin_sqrtf(mean + row.epsilon));
  for (int64_t d = 0; d < row.columns; d += kLanes) {
    const int64_t left = row.columns - d;
    const Vec normal = mul(load_up_to(row.x + d, left), scale);
    store_up_to(out + d, mul(normal, load_up_to(row.weight + d, left)), left);
  }
}

inline void rms_norm(const NormRow& row) {
  if (row.dtype == DType::kBFloat16) {
    rms_norm_to(row, static_cast<BFloat16*>(row.out));
  } else {
    rms_norm_to(row, static_cast<float*>(row.out));
  }
}

inline Vec silu_times(Vec gate, Vec up) {
  const Vec one_plus = add(broadcast(1.0f), exp(sub(broadcast(0.0f), gate)));
  return mul(div(gate, one_plus), up);
}

template <typename T>
inline void silu_mul_as(const SiluRow& row) {
  const T* gates = static_cast<const T*>(row.gate);
  const T* ups = static_cast<const T*>(row.up);
  T* out = static_cast<T*>(row.out);
  for (int64_t i = 0; i < row.columns; i += kLanes) {
    const int64_t left = row.columns - i;
    store_up_to(out + i, silu_times(load_up_to(gates + i, left), load_up_to(ups + i, left)), left);
  }
}

inline void silu_mul(const SiluRow& row) {
  if (row.dtype == DType::kBFloat16) {
    silu_mul_as<BFloat16>(row);
  } else {
    silu_mul_as<float>(row);
  }
}

// 1 / sqrt(mean(x²) + epsilon) of a head.
template <typename T>
inline float head_scale(const RotateRow& row, const T* in) {
  Vec squares = broadcast(0.0f);
  for (int64_t i = 0; i < 2 * row.half; i += kLanes) {
    const Vec x = load_up_to(in + i, 2 * row.half - i);
    squares = fma(x, x, squares);
  }
  return 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(2 * row.half) + row.epsilon);
}

template <typename T>
inline void rotate_as(const RotateRow& row) {
  const T* in = static_cast<const T*>(row.in);
  T* out = static_cast<T*>(row.out);
  const Vec scale = broadcast(row.norm == nullptr ? 1.0f : head_scale(row, in));
  for (int64_t i = 0; i < row.half; i += kLanes) {
    const int64_t left = row.half - i;
    Vec a = load_up_to(in + i, left);
    Vec b = load_up_to(in + row.half + i, left);
    if (row.norm != nullptr) {
      a = mul(mul(a, scale), load_up_to(row.norm + i, left));
      b = mul(mul(b, scale), load_up_to(row.norm + row.half + i, left));
    }
    if (row.cosine == nullptr) {
      store_up_to(out + i, a, left);
      store_up_to(out + row.half + i, b, left);
      continue;
    }
    const Vec cosine = load_up_to(row.cosine + i, left);
    const Vec sine = load_up_to(row.sine + i, left);
    store_up_to(out + i, sub(mul(a, cosine), mul(b, sine)), left);
    store_up_to(out + row.half + i, add(mul(b, cosine), mul(a, sine)), left);
  }
}

inline void rotate(const RotateRow& row) {
  if (row.dtype == DType::kBFloat16) {
    rotate_as<BFloat16>(row);
  } else {
    rotate_as<float>(row);
  }
}

inline void to_float(const ConvertRow& row) {
  const char* in = static_cast<const char*>(row.in);
  if (row.dtype == DType::kFloat32) {
    __builtin_memcpy(row.out, in, static_cast<size_t>(row.columns) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < row.columns; i += kLanes) {
    const int64_t count = row.columns - i < kLanes ? row.columns - i : kLanes;
    alignas(64) uint16_t bits[kLanes] = {};
    __builtin_memcpy(bits, in + i * 2, static_cast<size_t>(count) * 2);
    alignas(64) BFloat16 as_bfloat16[kLanes];
    __builtin_memcpy(as_bfloat16, bits, sizeof(bits));
    const Vec value = row.dtype == DType::kFloat16 ? load_half(bits) : load(as_bfloat16);
    store_up_to(row.out + i, value, count);
  }
}

template <typename T>
inline void quantize_as(const QuantizeRow& row) {
  const T* x = static_cast<const T*>(row.x);
  Vec found = broadcast(0.0f);
  for (int64_t k = 0; k < row.columns; k += kLanes) {
    const Vec value = load_up_to(x + k, row.columns - k);
    found = max(max(value, sub(broadcast(0.0f), value)), found);
  }
  const float most = largest(found);
  const bool some = most > kQuantizedLeast;
  *row.scale = some ? most / 127.0f : 0.0f;
  const Vec inverse = broadcast(some ? 127.0f / most : 0.0f);
  for (int64_t k = 0; k < row.columns; k += kLanes) {
    alignas(64) int32_t rounded[kLanes];
    store_ints(rounded, to_ints(mul(load_up_to(x + k, row.columns - k), inverse)));
    const int64_t count = row.columns - k < kLanes ? row.columns - k : kLanes;
    for (int64_t i = 0; i < count; ++i) row.quads[k + i] = static_cast<uint8_t>(rounded[i] + 128);
  }
}

inline void quantize(const QuantizeRow& row) {
  if (row.dtype == DType::kBFloat16) {
    quantize_as<BFloat16>(row);
  } else {
    quantize_as<float>(row);
  }
}
