// Written once, compiled per instruction set (see math_body.h), before attention_body.h, which says what is
// computed: an item's scratch memory, the way from a block table to its keys, and the scores of a tile of
// them.

// Memory of one item, all rows padded with zeros to whole vectors. A record is what one row knows of some
// keys: its largest score, Σ exp(s - largest), then from kRecordHead on Σ exp(s - largest) · v.
struct AttentionScratch {
  explicit AttentionScratch(const AttentionTile& t)
      : width((t.head_dim + kLanes - 1) / kLanes * kLanes),
        record(attention_record_floats(t.head_dim)),
        q(t.scratch),
        whole(q + kAttentionRows * width),
        chunk(whole + kAttentionRows * record),
        keys(chunk + kAttentionRows * record),
        scores(keys + kAttentionTileKeys * width) {}
  int64_t width;   // C rounded up
  int64_t record;  // floats of one
  float* q;        // (rows, width), or as the way of scoring has it
  float* whole;    // (rows, record): all chunks so far
  float* chunk;    // (rows, record): the one in work
  float* keys;     // (tile keys, width)
  float* scores;   // (rows, tile keys)
};
inline constexpr int64_t kRecordHead = kAttentionRecordHead;

template <typename T>
inline void copy_padded(const T* in, float* out, int64_t count, int64_t width) {
  for (int64_t c = 0; c < width; c += kLanes) {
    const int64_t left = count - c;
    store(out + c, load_up_to(in + c, left < 0 ? 0 : left));
  }
}

template <typename T>
inline const T* query(const AttentionTile& t, int64_t row) {
  return static_cast<const T*>(t.q) + row / t.group * t.row_stride + row % t.group * t.head_dim;
}

// The addresses of one tile's keys and values, by the block table; elements are t.dtype's. Entries past
// `count` repeat the first.
struct TileRows {
  const char* keys[kAttentionTileKeys];
  const char* values[kAttentionTileKeys];
  int64_t count;
  // The same memory in pieces, of at most a page where they were put together.
  struct Piece {
    const char* begin;
    int64_t bytes;
  };
  Piece pieces[2 * kAttentionTileKeys];
  int64_t piece_count;

  void add_piece(const char* begin, int64_t bytes) {
    constexpr int64_t kPage = 4096;
    if (piece_count > 0) {
      Piece& last = pieces[piece_count - 1];
      if (last.begin + last.bytes == begin && last.bytes + bytes <= kPage) {
        last.bytes += bytes;
        return;
      }
    }
    pieces[piece_count++] = {begin, bytes};
  }
};

inline void find_rows(const AttentionTile& t, int64_t first, int64_t last_count, TileRows& rows) {
  const int64_t left = last_count - first;
  const int64_t row_bytes = t.head_dim * (t.dtype == DType::kBFloat16 ? 2 : 4);
  rows.count = left < kAttentionTileKeys ? left : kAttentionTileKeys;
  rows.piece_count = 0;
  int64_t index = first / t.block_size;
  int64_t offset = first % t.block_size;
  for (int64_t j = 0; j < rows.count; ++index, offset = 0) {
    const int64_t in_block = t.block_size - offset;
    const int64_t end = j + (in_block < rows.count - j ? in_block : rows.count - j);
    int64_t at = t.blocks[index] * t.block_bytes + offset * row_bytes;
    rows.add_piece(t.keys + at, (end - j) * row_bytes);
    rows.add_piece(t.values + at, (end - j) * row_bytes);
    for (; j < end; ++j, at += row_bytes) {
      rows.keys[j] = t.keys + at;
      rows.values[j] = t.values + at;
    }
  }
  for (int64_t j = rows.count; j < kAttentionTileKeys; ++j) {
    rows.keys[j] = rows.keys[0];
    rows.values[j] = rows.values[0];
  }
}

// Asks for the next tile's keys and values before their turn, into L2. Blocks lie anywhere, so no hardware
// prefetcher sees the next one coming; but once asked for some lines of a page it runs on in it, and it does
// so in many pages at a time. A core alone keeps some sixteen misses in flight, half of what memory gives,
// and stands still when asked for more at once. So all pieces (pages) are asked for in turns, some lines
// each, evenly over the arithmetic of the tile in work, whose steps are about a cycle each.
//
// Tried and lost: one piece after the other (arithmetic and memory added up); only a piece's first lines, or
// every second or fourth; fewer lines a turn, or more; all keys before all values; turns over some of the
// pieces; earlier than evenly; into L1.
class Ahead {
 public:
  Ahead(const TileRows& next, int64_t steps) : next_(next) {
    if (next.count == 0) return;
    for (int64_t p = 0; p < next.piece_count; ++p) left_ += (next.pieces[p].bytes + kTurn - 1) / kTurn;
    price_ = steps > left_ ? steps / left_ : 1;
  }
  // The arithmetic got on by so many steps.
  void pace(int64_t steps) {
    steps_ += steps;
    for (; steps_ >= price_ && left_ > 0; steps_ -= price_) ask();
  }
  void ask_rest() {
    while (left_ > 0) ask();
  }

 private:
  static constexpr int64_t kTurn = 4 * 64;  // bytes

  void ask() {
    while (next_.pieces[piece_].bytes <= offset_) to_next_piece();
    const TileRows::Piece& piece = next_.pieces[piece_];
    const int64_t end = offset_ + kTurn < piece.bytes ? offset_ + kTurn : piece.bytes;
    for (int64_t b = offset_; b < end; b += 64) _mm_prefetch(piece.begin + b, _MM_HINT_T1);
    --left_;
    to_next_piece();
  }
  void to_next_piece() {
    if (++piece_ < next_.piece_count) return;
    piece_ = 0;
    offset_ += kTurn;
  }

  const TileRows& next_;
  int64_t left_ = 0;   // turns
  int64_t price_ = 1;  // steps a turn
  int64_t piece_ = 0;
  int64_t offset_ = 0;  // bytes
  int64_t steps_ = 0;   // not yet paid out
};

// (count) rows of C to (count, width) float32.
template <typename T>
inline void convert_rows(const char* const* rows, float* out, const AttentionTile& t, int64_t count,
                         Ahead& ahead) {
  const int64_t width = (t.head_dim + kLanes - 1) / kLanes * kLanes;
  for (int64_t j = 0; j < count; ++j) {
    ahead.pace(width / kLanes);
    const T* row = reinterpret_cast<const T*>(rows[j]);
    if (width == t.head_dim) {
      for (int64_t c = 0; c < width; c += kLanes) store(out + j * width + c, load(row + c));
    } else {
      copy_padded(row, out + j * width, t.head_dim, width);
    }
  }
}

// Scores of one row against kLanes keys, unscaled. kWidth: C where it is known at compile time (all addresses
// are then one register and constants), else 0.
template <int kWidth>
inline Vec score_vector(const float* q, const float* keys, int64_t run_time_width) {
  const int64_t width = kWidth > 0 ? kWidth : run_time_width;
  Vec partial[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) partial[j] = broadcast(0.0f);
#pragma GCC unroll 4
  for (int64_t c = 0; c < width; c += kLanes) {
    const Vec x = load(q + c);
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) partial[j] = fma(x, load(keys + j * width + c), partial[j]);
  }
  return sum_each(partial);
}

// Keys row `row` sees of the tile at `first`; <= 0 where the tile lies in its future.
inline int64_t visible_to(const AttentionTile& t, int64_t row, int64_t first) {
  const int64_t seen = t.first_count + row / t.group - first;
  return seen < kAttentionTileKeys ? seen : kAttentionTileKeys;
}

// Fills s.scores for a tile: for every row the scaled scores of the keys it sees, up to whole vectors (what
// stands behind the last visible key is of no meaning). One way of several; see pair_scores_avx512.h.
template <typename T>
struct FloatScores {
  static void load_queries(const AttentionTile& t, const AttentionScratch& s) {
    for (int64_t row = 0; row < t.queries * t.group; ++row) {
      copy_padded(query<T>(t, row), s.q + row * s.width, t.head_dim, s.width);
    }
  }
  // The steps of score(), see Ahead.
  static int64_t steps(const AttentionTile& t, const AttentionScratch& s) {
    return kAttentionTileKeys * s.width / kLanes * (1 + t.queries * t.group);
  }
  static void score(const AttentionTile& t, const AttentionScratch& s, const TileRows& keys, int64_t first,
                    Ahead& ahead) {
    convert_rows<T>(keys.keys, s.keys, t, keys.count, ahead);
    for (int64_t row = 0; row < t.queries * t.group; ++row) {
      const int64_t visible = visible_to(t, row, first);
      if (s.width == 64) {
        score_as<64>(t, s, row, visible);
      } else if (s.width == 128) {
        score_as<128>(t, s, row, visible);
      } else {
        score_as<0>(t, s, row, visible);
      }
      ahead.pace(kAttentionTileKeys * s.width / kLanes);
    }
  }

 private:
  template <int kWidth>
  static void score_as(const AttentionTile& t, const AttentionScratch& s, int64_t row, int64_t visible) {
    const Vec scale = broadcast(t.scale);
    for (int64_t j = 0; j < visible; j += kLanes) {
      const Vec dots = score_vector<kWidth>(s.q + row * s.width, s.keys + j * s.width, s.width);
      store(s.scores + row * kAttentionTileKeys + j, mul(dots, scale));
    }
  }
};

// ALiBi: adds slope · (key's position - query's position) to one row's scores of the tile at `first`. The
// distance is a whole number below 2²⁴, exact in float32, however the prompt was cut.
inline void add_distances(const AttentionTile& t, const AttentionScratch& s, int64_t row, int64_t first) {
  alignas(64) float index[kLanes];
  for (int i = 0; i < kLanes; ++i) index[i] = static_cast<float>(i);
  const int64_t visible = visible_to(t, row, first);
  const int64_t position = t.first_count + row / t.group - 1;
  const Vec slope = broadcast(t.slopes[row % t.group]);
  float* scores = s.scores + row * kAttentionTileKeys;
  for (int64_t j = 0; j < visible; j += kLanes) {
    const Vec distance = add(broadcast(static_cast<float>(first + j - position)), load(index));
    store(scores + j, fma(slope, distance, load(scores + j)));
  }
}

// The largest of a row's `visible` scores; those behind them in the last vector become minus infinity.
inline float mask_scores(float* scores, int64_t visible) {
  Vec found = broadcast(-__builtin_inff());
  for (int64_t i = visible; i % kLanes != 0; ++i) scores[i] = -__builtin_inff();
  for (int64_t j = 0; j < visible; j += kLanes) found = max(found, load(scores + j));
  return largest(found);
}
