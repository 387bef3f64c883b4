// Written once, compiled per instruction set (see math_body.h): attention of up to kAttentionRows query rows
// that share one key/value head, over that head's keys and values.
//
//   s[j] = scale · q·k[j] (+ slope · (j - p) with ALiBi)
//   out = Σ_j exp(s[j] - max s) · v[j] / Σ_j exp(s[j] - max s)
//
// Keys are taken in tiles of kAttentionTileKeys, counted from position 0, and the softmax is kept up online
// (running maximum and sum; sums are rescaled when the maximum grows). Every kAttentionChunkKeys keys,
// counted from position 0 as well, a row starts anew, and what it found in a chunk is merged into what it
// found before: so a chunk may as well be computed by another thread, and a long context be split over all of
// them (attention.h), without changing a bit. The KV memory is read once per (query tile, key/value head).
// What one row computes is a function of its own q and its own keys only: which rows share the item, and how
// a prompt was cut into chunks, changes no bit of it. Bytes: 2 · keys · C · element size. Flops: 4 · rows ·
// keys · C.
//
// In float32 lanes run along C, and kLanes keys' partial sums are added by one transposition: keys transposed
// into lanes would need no horizontal sums, but 16 shuffles a key, too dear at decode's few rows. In bfloat16
// with AVX512-BF16 it takes half as many and pays: pair_scores_avx512.h.

inline constexpr int64_t kSoftmaxSteps = 64;  // of softmax_row(), see Ahead
// Scores of one row's `visible` keys become softmax weights relative to the running maximum of its record;
// the record's sums are rescaled where the maximum grew.
inline void softmax_row(const AttentionScratch& s, float* record, int64_t row, int64_t visible,
                        Ahead& ahead) {
  float* scores = s.scores + row * kAttentionTileKeys;
  const float before = record[0];
  const float in_tile = mask_scores(scores, visible);
  const float now = in_tile > before ? in_tile : before;
  const Vec shift = broadcast(now);
  Vec total = broadcast(0.0f);
  for (int64_t j = 0; j < visible; j += kLanes) {
    const Vec weight = exp(sub(load(scores + j), shift));
    store(scores + j, weight);
    total = add(total, weight);
    ahead.pace(kSoftmaxSteps * kLanes / kAttentionTileKeys);
  }
  if (now != before) {
    alignas(64) float lanes[kLanes];
    store(lanes, exp(broadcast(before - now)));
    const Vec factor = broadcast(lanes[0]);
    float* sums = record + kRecordHead;
    for (int64_t c = 0; c < s.width; c += kLanes) store(sums + c, mul(load(sums + c), factor));
    record[1] *= lanes[0];
    record[0] = now;
  }
  record[1] += sum(total);
}

// The values of a tile as they lie in memory, or in float32 as convert_rows left them where C is not whole
// vectors.
template <typename T>
struct ValueRows {
  const char* const* rows;
  int64_t visible;
  Ahead& ahead;
};

// sums[i] += Σ_j weight[i][j] · v[j] for kRows rows that see the same keys, kVectors vectors of C from
// `column` on, j ascending. `records` and `weights` are the first row's.
template <int kRows, int kVectors, typename T>
requires(kVectors == 1 ||
         kVectors % 2 == 0) inline void add_values(const AttentionScratch& s, int64_t row, float* records,
                                                   const ValueRows<T>& values, int64_t column) {
  constexpr bool kInTwos = kVectors % 2 == 0;
  Vec sums[kRows][kVectors];
  float* out = records + row * s.record + kRecordHead + column;
  const float* weights = s.scores + row * kAttentionTileKeys;
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = load(out + i * s.record + v * kLanes);
  }
  constexpr int64_t kPaceKeys = 8;  // more often would cost many rows a tenth of their speed
  for (int64_t j = 0; j < values.visible;) {
    const int64_t end = j + kPaceKeys < values.visible ? j + kPaceKeys : values.visible;
    values.ahead.pace(kPaceKeys * kVectors * (kRows + 1) / 2);
    for (; j < end; ++j) {
      const T* value = reinterpret_cast<const T*>(values.rows[j]) + column;
      Vec parts[kVectors];
      if constexpr (kInTwos) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; v += 2) load_two(value + v * kLanes, parts[v], parts[v + 1]);
      } else {
        parts[0] = load(value);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec weight = broadcast(weights[i * kAttentionTileKeys + j]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[i][v] = fma(weight, parts[v], sums[i][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(out + i * s.record + v * kLanes, sums[i][v]);
  }
}

template <int kRows, typename T>
inline void add_values_of_rows(const AttentionScratch& s, int64_t row, float* records,
                               const ValueRows<T>& values) {
  constexpr int kWide = kRows <= 4 ? 4 : 2;  // what the registers hold
  int64_t column = 0;
  for (; column + kWide * kLanes <= s.width; column += kWide * kLanes)
    add_values<kRows, kWide>(s, row, records, values, column);
  for (; column + 2 * kLanes <= s.width; column += 2 * kLanes)
    add_values<kRows, 2>(s, row, records, values, column);
  if (column < s.width) add_values<kRows, 1>(s, row, records, values, column);
}

// Rows that see the same keys are taken together: they share the loads of the values, and their chains of
// additions overlap.
inline constexpr int64_t kTogetherMax = kLanes == 16 ? 8 : 2;
template <typename T>
inline void weigh_values(const AttentionTile& t, const AttentionScratch& s, float* records, int64_t first,
                         const char* const* value_rows, Ahead& ahead) {
  const int64_t rows = t.queries * t.group;
  for (int64_t row = 0; row < rows;) {
    const int64_t visible = visible_to(t, row, first);
    int64_t together = 1;
    while (together < kTogetherMax && row + together < rows &&
           visible_to(t, row + together, first) == visible) {
      ++together;
    }
    const ValueRows<T> values{value_rows, visible, ahead};
    if (visible > 0) {
      if (together == 8) add_values_of_rows<8>(s, row, records, values);
      if (together == 7) add_values_of_rows<7>(s, row, records, values);
      if (together == 6) add_values_of_rows<6>(s, row, records, values);
      if (together == 5) add_values_of_rows<5>(s, row, records, values);
      if (together == 4) add_values_of_rows<4>(s, row, records, values);
      if (together == 3) add_values_of_rows<3>(s, row, records, values);
      if (together == 2) add_values_of_rows<2>(s, row, records, values);
      if (together == 1) add_values_of_rows<1>(s, row, records, values);
    }
    row += together;
  }
}

// Adds a tile's values, weighted by s.scores, to the records of the rows that see it. One way of several; see
// tile_values_amx.h.
template <typename T>
struct VectorValues {
  // The steps of add(), see Ahead.
  static int64_t steps(const AttentionTile& t, const AttentionScratch& s) {
    const int64_t rows = t.queries * t.group;
    const int64_t groups = (rows + kTogetherMax - 1) / kTogetherMax;
    return kAttentionTileKeys * s.width / kLanes * (rows + groups) / 2;
  }
  static void add(const AttentionTile& t, const AttentionScratch& s, float* records, const TileRows& here,
                  int64_t first, Ahead& ahead) {
    if (s.width == t.head_dim) return weigh_values<T>(t, s, records, first, here.values, ahead);
    convert_rows<T>(here.values, s.keys, t, here.count, ahead);  // the tile's keys have been used
    const char* converted[kAttentionTileKeys];
    for (int64_t j = 0; j < here.count; ++j) {
      converted[j] = reinterpret_cast<const char*>(s.keys + j * s.width);
    }
    weigh_values<float>(t, s, records, first, converted, ahead);
  }
};

// All rows against the keys [begin, end) of one chunk, into `records`.
template <typename T, typename Scores, typename Values>
inline void attend_chunk(const AttentionTile& t, const AttentionScratch& s, float* records, int64_t begin,
                         int64_t end) {
  const int64_t rows = t.queries * t.group;
  for (int64_t row = 0; row < rows; ++row) {
    float* record = records + row * s.record;
    __builtin_memset(record, 0, static_cast<size_t>(s.record) * sizeof(float));
    record[0] = -__builtin_inff();
  }
  const int64_t last_count = t.first_count + t.queries - 1;
  const int64_t steps = Scores::steps(t, s) + rows * kSoftmaxSteps + Values::steps(t, s);
  TileRows tiles[2];  // the one in work and the next
  find_rows(t, begin, end, tiles[0]);
  int in_work = 0;
  for (int64_t first = begin; first < end; first += kAttentionTileKeys, in_work ^= 1) {
    const TileRows& here = tiles[in_work];
    TileRows& next = tiles[in_work ^ 1];
    next.count = 0;  // it may be the next chunk's
    if (first + kAttentionTileKeys < last_count) find_rows(t, first + kAttentionTileKeys, last_count, next);
    Ahead ahead(next, steps);
    Scores::score(t, s, here, first, ahead);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t visible = visible_to(t, row, first);
      if (t.slopes != nullptr) add_distances(t, s, row, first);
      if (visible > 0) softmax_row(s, records + row * s.record, row, visible, ahead);
    }
    Values::add(t, s, records, here, first, ahead);
    ahead.ask_rest();
  }
}

// Adds what a row found in one more chunk to what it found before. One compiled copy, so that every caller
// rounds alike.
__attribute__((noinline)) inline void merge_record(float* whole, const float* chunk, int64_t width) {
  if (chunk[1] == 0) return;  // saw no key of it
  const float most = whole[0] > chunk[0] ? whole[0] : chunk[0];
  alignas(64) float lanes[kLanes];
  store(lanes, exp(broadcast(whole[0] - most)));
  const Vec old_factor = broadcast(lanes[0]);
  store(lanes, exp(broadcast(chunk[0] - most)));
  const Vec new_factor = broadcast(lanes[0]);
  whole[0] = most;
  store(lanes, fma(broadcast(chunk[1]), new_factor, mul(broadcast(whole[1]), old_factor)));
  whole[1] = lanes[0];
  for (int64_t c = kRecordHead; c < kRecordHead + width; c += kLanes) {
    store(whole + c, fma(load(chunk + c), new_factor, mul(load(whole + c), old_factor)));
  }
}

template <typename T>
inline void store_row(const AttentionTile& t, const AttentionScratch& s, int64_t row, const float* record) {
  T* out = static_cast<T*>(t.out) + row / t.group * t.row_stride + row % t.group * t.head_dim;
  const Vec total = broadcast(record[1]);
  const float* sums = record + kRecordHead;
  int64_t c = 0;
  for (; s.width == t.head_dim && c + 2 * kLanes <= t.head_dim; c += 2 * kLanes) {
    Vec a = div(load(sums + c), total);
    Vec b = div(load(sums + c + kLanes), total);
    from_twos<T>(a, b);
    store(out + c, a);
    store(out + c + kLanes, b);
  }
  for (; c < t.head_dim; c += kLanes) {
    store_up_to(out + c, div(load(sums + c), total), t.head_dim - c);
  }
}

template <typename T>
inline void store_rows(const AttentionTile& t, const AttentionScratch& s, const float* records) {
  for (int64_t row = 0; row < t.queries * t.group; ++row) store_row<T>(t, s, row, records + row * s.record);
}

template <typename T, typename Scores, typename Values = VectorValues<T>>
inline void attention_as(const AttentionTile& t) {
  const AttentionScratch s(t);
  const int64_t rows = t.queries * t.group;
  Scores::load_queries(t, s);
  const int64_t last_count = t.first_count + t.queries - 1;
  for (int64_t c = t.first_chunk; c < t.end_chunk; ++c) {
    const int64_t begin = c * kAttentionChunkKeys;
    const int64_t end = begin + kAttentionChunkKeys < last_count ? begin + kAttentionChunkKeys : last_count;
    if (t.records != nullptr) {
      attend_chunk<T, Scores, Values>(t, s, t.records + (c - t.first_chunk) * rows * s.record, begin, end);
      continue;
    }
    attend_chunk<T, Scores, Values>(t, s, c == 0 ? s.whole : s.chunk, begin, end);
    if (c == 0) continue;
    for (int64_t row = 0; row < rows; ++row) {
      merge_record(s.whole + row * s.record, s.chunk + row * s.record, s.width);
    }
  }
  if (t.records == nullptr) store_rows<T>(t, s, s.whole);
}

inline void attention(const AttentionTile& t) {
  if (t.dtype == DType::kBFloat16) {
    attention_as<BFloat16, FloatScores<BFloat16>>(t);
  } else {
    attention_as<float, FloatScores<float>>(t);
  }
}

// The chunks' records of an item that was split, in t.records from chunk 0 on, become its rows' results.
inline void merge_attention(const AttentionTile& t) {
  const AttentionScratch s(t);
  const int64_t rows = t.queries * t.group;
  for (int64_t row = 0; row < rows; ++row) {
    float* whole = t.records + row * s.record;
    for (int64_t c = 1; c < t.end_chunk; ++c) merge_record(whole, whole + c * rows * s.record, s.width);
  }
  if (t.dtype == DType::kBFloat16) {
    store_rows<BFloat16>(t, s, t.records);
  } else {
    store_rows<float>(t, s, t.records);
  }
}
