// Written once, compiled per instruction set: included inside namespace troupe::cpu::<set> by target_*.cc,
// after vec_<set>.h. Hence no include guard and no includes.
//
// ConversationsEndpoint and exp. A tail of fewer than kLanes elements goes through a zero-filled copy, so the
// very same instructions run on it: an element's result does not depend on where in a row, or in how long a
// row, it stands.

template <typename T>
inline Vec load_part(const T* p, int64_t count) {
  alignas(64) T copy[kLanes] = {};
  __builtin_memcpy(copy, p, static_cast<size_t>(count) * sizeof(T));
  return load(copy);
}

template <typename T>
inline void store_part(T* p, Vec a, int64_t count) {
  alignas(64) T copy[kLanes];
  store(copy, a);
  __builtin_memcpy(p, copy, static_cast<size_t>(count) * sizeof(T));
}

template <typename T>
inline Vec load_up_to(const T* p, int64_t count) {
  return count >= kLanes ? load(p) : load_part(p, count);
}

template <typename T>
inline void store_up_to(T* p, Vec a, int64_t count) {
  if (count >= kLanes) {
    store(p, a);
  } else {
    store_part(p, a, count);
  }
}

// eʳ of what n·ln2 leaves of x, |r| <= ln2/2: ln2 in two parts, the first with few enough bits for an exact
// product, then Cephes' expf polynomial.
inline Vec exp_rest(Vec x, Vec n) {
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), broadcast(1.0f));
  return p;
}

// eˣ within 2e-7 relative for x in [-87.3, 88.3]; 0 below, e^88.3 above, NaN for NaN, and exactly 1 at 0.
// x = n·ln2 + r, eʳ as above, then 2ⁿ through the exponent bits.
inline Vec exp(Vec x) {
  const Vec limited = max(broadcast(-88.0f), min(broadcast(88.3f), x));
  const Vec n = round(mul(limited, broadcast(1.44269504088896341f)));
  const Vec p = exp_rest(limited, n);
  // At the lower limit n is -127, whose 2ⁿ the exponent bits cannot hold: that result is dropped anyway.
  return zero_below(scale_by_power(p, n), x, broadcast(-87.3f));
}
