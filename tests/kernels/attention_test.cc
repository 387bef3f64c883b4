// rope_kv and attention over blocks: right within their rounding, bitwise independent of how a prompt was
// cut, of the other requests, of where the blocks lie and of the number of threads.

#include <algorithm>
#include <numeric>

#include "tests/kernels/kernel_testing.h"

namespace troupe::attention_test {

using namespace kernel_testing;

struct Geometry {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  int layers = 2;
  std::vector<float> slopes = {};  // (heads): ALiBi
};

// Slopes as ALiBi has them: from steep to almost flat.
Geometry with_slopes(Geometry g) {
  for (int h = 1; h <= g.heads; ++h) {
    g.slopes.push_back(std::exp2(-8.0f * static_cast<float>(h) / static_cast<float>(g.heads)));
  }
  return g;
}

// One request: all its q, k, v rows as they would arrive over time.
struct Sequence {
  OwnedTensor q;       // (keys, H, C)
  OwnedTensor keys;    // (keys, G, C)
  OwnedTensor values;  // (keys, G, C)
  int64_t key_count;
};

Sequence make_sequence(const Geometry& g, DType dtype, int64_t keys, uint32_t seed) {
  std::mt19937 random(seed);
  auto q = OwnedTensor::random(dtype, {keys, g.heads, g.head_dim}, random);
  auto k = OwnedTensor::random(dtype, {keys, g.kv_heads, g.head_dim}, random, 1.5f);
  return {std::move(q), std::move(k), OwnedTensor::random(dtype, {keys, g.kv_heads, g.head_dim}, random),
          keys};
}

// KV memory whose untouched parts are NaN, so that a key read past a request's end shows.
class Memory {
 public:
  Memory(const Geometry& g, DType dtype, int64_t blocks)
      : geometry_(g),
        layout_{g.layers, g.kv_heads, g.head_dim, g.block_size},
        data_(dtype, {blocks * layout_.block_elements()}) {
    for (int64_t i = 0; i < data_.elements(); ++i) set_element(data_.view(), i, std::nanf(""));
    order_.resize(static_cast<size_t>(blocks));
    std::iota(order_.begin(), order_.end(), 0);
  }
  void shuffle(uint32_t seed) {
    std::mt19937 random(seed);
    std::shuffle(order_.begin(), order_.end(), random);
  }
  void bind(Backend& backend) {
    backend.bind_kv(layout_, data_.view().data, static_cast<int64_t>(order_.size()));
  }

  // Blocks for the sequence, its keys and values in them; its block table.
  std::vector<int32_t> place(const Sequence& sequence, int layer) {
    std::vector<int32_t> table;
    for (int64_t j = 0; j < sequence.key_count; ++j) {
      if (j % geometry_.block_size == 0) {
        table.push_back(order_.back());
        order_.pop_back();
      }
      for (int64_t g = 0; g < geometry_.kv_heads; ++g) {
        for (int64_t c = 0; c < geometry_.head_dim; ++c) {
          const int64_t from = (j * geometry_.kv_heads + g) * geometry_.head_dim + c;
          const int64_t offset = j % geometry_.block_size * geometry_.head_dim + c;
          put(table.back(), layer, 0, g, offset, sequence.keys.at(from));
          put(table.back(), layer, 1, g, offset, sequence.values.at(from));
        }
      }
    }
    return table;
  }
  double get(int64_t block, int layer, int which, int64_t g, int64_t offset) const {
    return data_.at(index(block, layer, which, g, offset));
  }

 private:
  int64_t index(int64_t block, int layer, int which, int64_t g, int64_t offset) const {
    const int64_t head = (layer * geometry_.kv_heads + g) * 2 + which;
    return block * layout_.block_elements() + head * geometry_.block_size * geometry_.head_dim + offset;
  }
  void put(int64_t block, int layer, int which, int64_t g, int64_t offset, double value) {
    set_element(data_.view(), index(block, layer, which, g, offset), static_cast<float>(value));
  }
  Geometry geometry_;
  KvLayout layout_;
  OwnedTensor data_;
  std::vector<int32_t> order_;
};

// Some of a sequence's queries, with its table.
struct Part {
  const Sequence* sequence;
  std::vector<int32_t> table;
  int64_t first;
  int64_t count;
};

// One attention call over the parts; out rows in order.
OwnedTensor attend(Backend& backend, const Geometry& g, const std::vector<Part>& parts, int layer) {
  int64_t tokens = 0;
  size_t stride = 0;
  for (const Part& part : parts) {
    tokens += part.count;
    stride = std::max(stride, part.table.size());
  }
  const DType dtype = backend.activation_dtype();
  OwnedTensor q(dtype, {tokens, g.heads, g.head_dim});
  OwnedTensor out(dtype, {tokens, int64_t{g.heads} * g.head_dim});
  std::vector<int32_t> starts{0};
  std::vector<int32_t> contexts;
  std::vector<int32_t> tables(parts.size() * stride, 0);
  for (size_t r = 0; r < parts.size(); ++r) {
    const Part& part = parts[r];
    const Tensor from = part.sequence->q.rows(part.first, part.count);
    std::memcpy(q.rows(starts.back(), part.count).data, from.data, from.bytes());
    starts.push_back(starts.back() + static_cast<int32_t>(part.count));
    contexts.push_back(static_cast<int32_t>(part.first + part.count));
    std::copy(part.table.begin(), part.table.end(), tables.begin() + static_cast<int64_t>(r * stride));
  }
  AttentionParams params;
  params.q = q.view();
  params.query_starts = starts;
  params.context_counts = contexts;
  params.block_tables = tables;
  params.block_table_stride = static_cast<int32_t>(stride);
  params.layer = layer;
  params.scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
  params.out = out.view();
  params.alibi_slopes = g.slopes;
  backend.attention(params);
  return out;
}

// One (query, head) row in float64, and Σ weight · |value| for the tolerance.
struct TruthRow {
  std::vector<double> value;
  std::vector<double> magnitude;
  double largest_score = 0;  // of |scale · q·k| with absolute terms
};

TruthRow truth_row(const Geometry& g, const Sequence& s, int64_t query, int64_t head) {
  const int64_t group = head / (g.heads / g.kv_heads);
  const double scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
  TruthRow row{std::vector<double>(static_cast<size_t>(g.head_dim)),
               std::vector<double>(static_cast<size_t>(g.head_dim)), 0};
  std::vector<double> scores;
  double largest = -INFINITY;
  for (int64_t j = 0; j <= query; ++j) {
    double score = 0;
    double magnitude = 0;
    for (int64_t c = 0; c < g.head_dim; ++c) {
      const double term = s.q.at((query * g.heads + head) * g.head_dim + c) *
                          s.keys.at((j * g.kv_heads + group) * g.head_dim + c);
      score += term * scale;
      magnitude += std::abs(term) * scale;
    }
    if (!g.slopes.empty()) {
      const double distance = static_cast<double>(j - query) * g.slopes[static_cast<size_t>(head)];
      score += distance;
      magnitude += std::abs(distance);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
    row.largest_score = std::max(row.largest_score, magnitude);
  }
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - largest);
  for (int64_t j = 0; j <= query; ++j) {
    for (int64_t c = 0; c < g.head_dim; ++c) {
      const double term =
          scores[static_cast<size_t>(j)] / total * s.values.at((j * g.kv_heads + group) * g.head_dim + c);
      row.value[static_cast<size_t>(c)] += term;
      row.magnitude[static_cast<size_t>(c)] += std::abs(term);
    }
  }
  return row;
}

// Checks the given queries of a whole-prompt result.
std::optional<std::string> difference_from_truth(const Geometry& g, const Sequence& s, const OwnedTensor& out,
                                                 const std::vector<int64_t>& queries) {
  const double own = out.view().dtype == DType::kBFloat16 ? kBFloat16Epsilon : kFloatEpsilon;
  for (int64_t query : queries) {
    for (int64_t head = 0; head < g.heads; ++head) {
      const TruthRow truth = truth_row(g, s, query, head);
      // A score's error (a sum of C terms) is an error of its weight, relative; exp adds 2e-7; the sums over
      // keys and the online rescaling walk like √keys.
      const double score = 4 * std::sqrt(g.head_dim) * kFloatEpsilon * truth.largest_score;
      const double relative =
          2 * score + 4e-7 + 4 * std::sqrt(static_cast<double>(query) + 1) * kFloatEpsilon;
      for (int64_t c = 0; c < g.head_dim; ++c) {
        const auto i = static_cast<size_t>(c);
        const double actual = out.at((query * g.heads + head) * g.head_dim + c);
        const double tolerance = relative * truth.magnitude[i] + 1.01 * own * std::abs(truth.value[i]);
        if (std::abs(actual - truth.value[i]) <= tolerance) continue;
        return "query " + std::to_string(query) + " head " + std::to_string(head) + " column " +
               std::to_string(c) + " is " + std::to_string(actual) + ", expected " +
               std::to_string(truth.value[i]) + " ± " + std::to_string(tolerance);
      }
    }
  }
  return std::nullopt;
}

class AttentionOf : public testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<Backend> backend_ = make(GetParam());
  DType dtype_ = GetParam().options.dtype;
};

std::vector<int64_t> edge_queries(int64_t count) {
  std::vector<int64_t> queries;
  for (int64_t i : {0, 1, 14, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128}) {
    if (i < count) queries.push_back(i);
  }
  if (count > 129) queries.push_back(count - 1);
  return queries;
}

TEST_P(AttentionOf, IsItsFormulaInEveryGeometry) {
  const Geometry geometries[] = {{4, 2, 64, 16, 2},
                                 {8, 1, 64, 16, 1},
                                 {4, 4, 128, 16, 1},
                                 {14, 2, 64, 16, 1},
                                 {8, 1, 96, 5, 1},
                                 {2, 1, 8, 4, 3},
                                 {3, 3, 24, 5, 1},
                                 {2, 2, 72, 16, 1},
                                 {40, 1, 16, 16, 1},
                                 {2, 1, 80, 64, 1},
                                 {5, 1, 6, 3, 1},
                                 with_slopes({4, 4, 64, 16, 2}),
                                 with_slopes({40, 1, 16, 16, 1}),
                                 with_slopes({3, 1, 10, 4, 1})};
  for (const Geometry& g : geometries) {
    for (int64_t keys : {1, 17, kSanitized ? 70 : 130}) {
      const Sequence sequence = make_sequence(g, dtype_, keys, 41);
      Memory memory(g, dtype_, keys / g.block_size + 3);
      memory.shuffle(5);
      const int layer = g.layers - 1;
      memory.bind(*backend_);
      const OwnedTensor out =
          attend(*backend_, g, {{&sequence, memory.place(sequence, layer), 0, keys}}, layer);
      EXPECT_EQ(difference_from_truth(g, sequence, out, edge_queries(keys)), std::nullopt)
          << g.heads << " heads of " << g.head_dim << ", " << keys << " keys";
    }
  }
}

TEST_P(AttentionOf, ABrokenKeyIsNoticed) {
  const Geometry g;
  Sequence sequence = make_sequence(g, dtype_, 40, 41);
  Memory memory(g, dtype_, 4);
  memory.bind(*backend_);
  const std::vector<int32_t> table = memory.place(sequence, 0);
  const double kept = sequence.keys.at(7 * 128 + 3);
  set_element(sequence.keys.view(), 7 * 128 + 3, static_cast<float>(kept) + 0.25f);
  const OwnedTensor out = attend(*backend_, g, {{&sequence, table, 0, 40}}, 0);
  EXPECT_EQ(difference_from_truth(g, sequence, out, {0, 5, 6}), std::nullopt);  // these do not see key 7
  EXPECT_NE(difference_from_truth(g, sequence, out, {7, 8, 39}), std::nullopt);
}

TEST_P(AttentionOf, ABrokenSlopeIsNoticed) {
  const Geometry g = with_slopes({4, 2, 64, 16, 1});
  const Sequence sequence = make_sequence(g, dtype_, 40, 41);
  Memory memory(g, dtype_, 4);
  memory.bind(*backend_);
  const std::vector<int32_t> table = memory.place(sequence, 0);
  Geometry broken = g;
  broken.slopes[2] += 0.01f;
  const OwnedTensor out = attend(*backend_, broken, {{&sequence, table, 0, 40}}, 0);
  EXPECT_EQ(difference_from_truth(g, sequence, out, {0}), std::nullopt);  // one key: no distance
  const auto difference = difference_from_truth(g, sequence, out, {39});
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->find("head 2"), std::string::npos) << *difference;
}

TEST_P(AttentionOf, ChunksAndSingleTokensGiveTheBitsOfTheWholePrompt) {
  for (const Geometry& g : {Geometry{4, 2, 64, 16, 1}, Geometry{14, 2, 128, 16, 1}, Geometry{2, 1, 24, 5, 1},
                            Geometry{8, 2, 32, 5, 1}, Geometry{3, 1, 96, 32, 1}, Geometry{1, 1, 32, 16, 1},
                            Geometry{2, 1, 256, 16, 1}, Geometry{2, 2, 128, 16, 1},
                            with_slopes({4, 4, 64, 16, 1}), with_slopes({10, 2, 128, 16, 1})}) {
    const int64_t keys = GetParam().name == "ref" ? 40 : kSanitized ? 100 : 333;
    const Sequence sequence = make_sequence(g, dtype_, keys, 43);
    Memory memory(g, dtype_, keys / g.block_size + 1);
    memory.bind(*backend_);
    const std::vector<int32_t> table = memory.place(sequence, 0);
    const OwnedTensor whole = attend(*backend_, g, {{&sequence, table, 0, keys}}, 0);
    EXPECT_EQ(difference_from_truth(g, sequence, whole, {keys - 1}), std::nullopt);
    for (int64_t chunk : {1, 7, 16, 64, 100}) {
      for (int64_t first = 0; first < keys; first += chunk) {
        const int64_t count = std::min(chunk, keys - first);
        const OwnedTensor part = attend(*backend_, g, {{&sequence, table, first, count}}, 0);
        ASSERT_TRUE(same_bits(part.view(), whole.rows(first, count)))
            << "chunk of " << chunk << " at " << first;
      }
    }
  }
}

TEST_P(AttentionOf, OtherRequestsAndOtherBlocksChangeNoBit) {
  const Geometry g;
  std::vector<Sequence> sequences;
  for (int64_t keys : {1, 200, 16, 65, 33, 90}) {
    sequences.push_back(make_sequence(g, dtype_, keys, static_cast<uint32_t>(keys)));
  }
  Memory memory(g, dtype_, 40);
  memory.shuffle(9);
  memory.bind(*backend_);
  std::vector<Part> parts;  // decodes and prefill chunks in one step
  const int64_t counts[] = {1, 50, 16, 1, 33, 1};
  for (size_t r = 0; r < sequences.size(); ++r) {
    const int64_t keys = sequences[r].key_count;
    parts.push_back({&sequences[r], memory.place(sequences[r], 1), keys - counts[r], counts[r]});
  }
  const OwnedTensor together = attend(*backend_, g, parts, 1);
  int64_t row = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    Memory own(g, dtype_, 20);
    own.bind(*backend_);
    const Part alone_part{&sequences[r], own.place(sequences[r], 1), parts[r].first, parts[r].count};
    const OwnedTensor alone = attend(*backend_, g, {alone_part}, 1);
    EXPECT_TRUE(same_bits(alone.view(), together.rows(row, parts[r].count))) << "request " << r;
    row += parts[r].count;
  }
}

TEST_P(AttentionOf, ThreadsChangeNoBit) {
  if (GetParam().name == "ref") return;
  const Geometry g{8, 2, 64, 16, 1};
  const Sequence sequence = make_sequence(g, dtype_, 300, 47);
  std::vector<OwnedTensor> outs;
  for (int threads : {1, 2, 5}) {
    Variant variant = GetParam();
    variant.options.threads = threads;
    const auto backend = make(variant);
    Memory memory(g, dtype_, 20);
    memory.bind(*backend);
    outs.push_back(attend(*backend, g, {{&sequence, memory.place(sequence, 0), 200, 100}}, 0));
  }
  EXPECT_TRUE(outs[0] == outs[1]);
  EXPECT_TRUE(outs[0] == outs[2]);
}

// Longer than a chunk of keys, so that what rows found in several is merged; at every end of a tile of keys.
TEST_P(AttentionOf, APrefillBehindALongContextGivesTheBitsOfSingleTokens) {
  if (GetParam().name == "ref" || kSanitized) return;
  for (const Geometry& g : {Geometry{4, 2, 64, 16, 1}, Geometry{14, 2, 64, 16, 1}, Geometry{8, 2, 128, 16, 1},
                            with_slopes({2, 2, 64, 16, 1})}) {
    const int64_t keys = 1100;
    const Sequence sequence = make_sequence(g, dtype_, keys, 73);
    Memory memory(g, dtype_, keys / g.block_size + 1);
    memory.shuffle(3);
    memory.bind(*backend_);
    const std::vector<int32_t> table = memory.place(sequence, 0);
    for (int64_t count : {130, 1091}) {
      const OwnedTensor together = attend(*backend_, g, {{&sequence, table, keys - count, count}}, 0);
      for (int64_t row = 0; row < count; row += 29) {
        const OwnedTensor alone = attend(*backend_, g, {{&sequence, table, keys - count + row, 1}}, 0);
        ASSERT_TRUE(same_bits(alone.view(), together.rows(row, 1)))
            << g.heads << " heads of " << g.head_dim << ", row " << row << " of " << count;
      }
    }
  }
}

// Every order of magnitude, numbers too small for all their digits among them, and scores that leave one key
// or all of them: however few the rows, the ways through them round alike.
TEST_P(AttentionOf, SmallestAndLargestNumbersGiveOneTokenTheBitsOfAPrompt) {
  if (GetParam().name == "ref") return;
  std::mt19937 random(79);
  std::uniform_real_distribution<float> mantissa(1.0f, 2.0f);
  const auto fill = [&](OwnedTensor& tensor, int least, int most) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const int exponent = least + static_cast<int>(random() % static_cast<uint32_t>(most - least + 1));
      const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
      set_element(tensor.view(), i, sign * std::ldexp(mantissa(random), exponent));
    }
  };
  for (const int heads : {1, 3, 8}) {
    for (const auto& [least, most] : {std::pair{-133, -60}, std::pair{-80, 2}, std::pair{-10, 40}}) {
      const Geometry g{heads, 1, 64, 16, 1};
      const int64_t keys = kSanitized ? 70 : 200;
      Sequence sequence = make_sequence(g, dtype_, keys, 83);
      fill(sequence.q, least, most);
      fill(sequence.keys, least, most);
      fill(sequence.values, -133, 100);
      Memory memory(g, dtype_, keys / g.block_size + 1);
      memory.bind(*backend_);
      const std::vector<int32_t> table = memory.place(sequence, 0);
      const OwnedTensor whole = attend(*backend_, g, {{&sequence, table, 0, keys}}, 0);
      for (int64_t row = 0; row < keys; row += 7) {
        const OwnedTensor alone = attend(*backend_, g, {{&sequence, table, row, 1}}, 0);
        ASSERT_TRUE(same_bits(alone.view(), whole.rows(row, 1)))
            << heads << " heads, 2^" << least << " to 2^" << most << ", row " << row;
      }
    }
  }
}

// One decoding request is too few items for many threads: its keys are split.
TEST_P(AttentionOf, SplittingOneContextOverThreadsChangesNoBit) {
  if (GetParam().name == "ref") return;
  const Geometry g{4, 1, 64, 16, 1};
  const int64_t keys = 2100;
  const Sequence sequence = make_sequence(g, dtype_, keys, 67);
  std::vector<OwnedTensor> outs;
  for (int threads : {1, 2, 5}) {
    Variant variant = GetParam();
    variant.options.threads = threads;
    const auto backend = make(variant);
    Memory memory(g, dtype_, keys / 16 + 1);
    memory.bind(*backend);
    const std::vector<int32_t> table = memory.place(sequence, 0);
    outs.push_back(attend(*backend, g, {{&sequence, table, keys - 1, 1}}, 0));
    outs.push_back(attend(*backend, g, {{&sequence, table, keys - 70, 70}}, 0));
  }
  for (size_t i = 2; i < outs.size(); ++i) EXPECT_TRUE(outs[i] == outs[i % 2]) << i;
  EXPECT_TRUE(same_bits(outs[1].rows(69, 1), outs[0].view())) << "decoded, and at the end of a chunk";
}

TEST_P(AttentionOf, EightThousandKeysStayExact) {
  if (GetParam().name == "ref") return;
  const Geometry g{2, 1, 64, 16, 1};
  const int64_t keys = 8000;
  const Sequence sequence = make_sequence(g, dtype_, keys, 53);
  Memory memory(g, dtype_, 501);
  memory.bind(*backend_);
  const std::vector<int32_t> table = memory.place(sequence, 0);
  const OwnedTensor last = attend(*backend_, g, {{&sequence, table, keys - 1, 1}}, 0);
  OwnedTensor whole(dtype_, {keys, 128});  // only the last row is looked at
  std::memcpy(whole.rows(keys - 1, 1).data, last.view().data, last.view().bytes());
  EXPECT_EQ(difference_from_truth(g, sequence, whole, {keys - 1}), std::nullopt);
}

// A token whose values are infinite or no numbers changes nothing before it, in the same tile of keys either.
TEST_P(AttentionOf, ValuesThatAreNotFiniteReachOnlyRowsThatSeeThem) {
  for (const Geometry& g :
       {Geometry{14, 2, 64, 16, 1}, Geometry{4, 4, 64, 16, 1}, Geometry{4, 1, 32, 5, 1}}) {
    const int64_t keys = kSanitized ? 40 : 100;
    Sequence sequence = make_sequence(g, dtype_, keys, 71);
    Memory memory(g, dtype_, 2 * keys);
    memory.bind(*backend_);
    const OwnedTensor before = attend(*backend_, g, {{&sequence, memory.place(sequence, 0), 0, keys}}, 0);
    for (int64_t broken : {int64_t{1}, int64_t{18}, keys - 3}) {
      Sequence other = sequence;
      const int64_t at = broken * g.kv_heads * g.head_dim;
      set_element(other.values.view(), at + 3, INFINITY);
      set_element(other.values.view(), at + 8, std::nanf(""));
      const OwnedTensor after = attend(*backend_, g, {{&other, memory.place(other, 0), 0, keys}}, 0);
      EXPECT_TRUE(same_bits(after.rows(0, broken), before.rows(0, broken))) << "broken: " << broken;
      for (int64_t query : {broken, keys - 1}) {
        EXPECT_FALSE(std::isfinite(after.at(query * g.heads * g.head_dim + 3)))
            << query << " sees " << broken;
        EXPECT_TRUE(std::isnan(after.at(query * g.heads * g.head_dim + 8))) << query << " sees " << broken;
      }
    }
  }
}

TEST_P(AttentionOf, HugeScoresDoNotOverflow) {
  const Geometry g{1, 1, 64, 16, 1};
  Sequence sequence = make_sequence(g, dtype_, 100, 59);
  for (int64_t i = 0; i < sequence.q.elements(); ++i) {
    set_element(sequence.q.view(), i, 64.0f * static_cast<float>(sequence.q.at(i)));
  }
  Memory memory(g, dtype_, 7);
  memory.bind(*backend_);
  const OwnedTensor out = attend(*backend_, g, {{&sequence, memory.place(sequence, 0), 0, 100}}, 0);
  EXPECT_EQ(difference_from_truth(g, sequence, out, edge_queries(100)), std::nullopt);
}

// One rope_kv call of random rows, and what it should have made of them.
struct RopeCase {
  Geometry geometry;
  bool norms = false;
  bool turns = true;
};

class RopeCall {
 public:
  static constexpr int64_t kTokens = 21;
  static constexpr int64_t kPositions = 50;
  static constexpr int64_t kBlocks = 60;
  static constexpr float kEpsilon = 1e-3f;

  RopeCall(const RopeCase& c, Backend& backend)
      : case_(c),
        heads_(c.geometry.heads + 2 * c.geometry.kv_heads),
        dtype_(backend.activation_dtype()),
        qkv_(OwnedTensor::random(dtype_, {kTokens, heads_ * c.geometry.head_dim}, random_)),
        cos_sin_(OwnedTensor::random(DType::kFloat32, {kPositions, c.geometry.head_dim}, random_)),
        q_norm_(OwnedTensor::random(DType::kFloat32, {c.geometry.head_dim}, random_)),
        k_norm_(OwnedTensor::random(DType::kFloat32, {c.geometry.head_dim}, random_)),
        q_(dtype_, {kTokens, c.geometry.heads, c.geometry.head_dim}),
        memory_(c.geometry, dtype_, kBlocks) {
    memory_.bind(backend);
    for (int32_t t = 0; t < kTokens; ++t) {
      positions_.push_back(t * 7 % static_cast<int32_t>(kPositions));
      slots_.push_back(t * 11 % (static_cast<int32_t>(kBlocks) * c.geometry.block_size));
    }
    RopeKvParams params;
    params.qkv = qkv_.view();
    if (c.turns) params.cos_sin = cos_sin_.view();
    params.positions = positions_;
    params.slots = slots_;
    params.layer = c.geometry.layers - 1;
    params.q_out = q_.view();
    if (c.norms) {
      params.q_norm = q_norm_.view();
      params.k_norm = k_norm_.view();
      params.norm_epsilon = kEpsilon;
    }
    backend.rope_kv(params);
  }

  // The heads of the qkv: query, key and value heads.
  int64_t head_count() const { return heads_; }
  bool is_value(int64_t head) const { return head >= case_.geometry.heads + case_.geometry.kv_heads; }

  double actual(int64_t t, int64_t head, int64_t c) const {
    const Geometry& g = case_.geometry;
    if (head < g.heads) return q_.at((t * g.heads + head) * g.head_dim + c);
    const int64_t slot = slots_[static_cast<size_t>(t)];
    const int64_t offset = slot % g.block_size * g.head_dim + c;
    return memory_.get(slot / g.block_size, g.layers - 1, is_value(head) ? 1 : 0,
                       (head - g.heads) % g.kv_heads, offset);
  }

  // Before the rotation.
  double normed(int64_t t, int64_t head, int64_t c) const {
    const int64_t width = case_.geometry.head_dim;
    const double x = qkv_.at((t * heads_ + head) * width + c);
    if (is_value(head) || !case_.norms) return x;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += std::pow(qkv_.at((t * heads_ + head) * width + i), 2);
    const OwnedTensor& weight = head < case_.geometry.heads ? q_norm_ : k_norm_;
    return x / std::sqrt(squares / static_cast<double>(width) + double{kEpsilon}) * weight.at(c);
  }

  double expected(int64_t t, int64_t head, int64_t c) const {
    if (is_value(head) || !case_.turns) return normed(t, head, c);
    const int64_t half = case_.geometry.head_dim / 2;
    const int64_t i = c % half;
    const int64_t angle = positions_[static_cast<size_t>(t)] * 2 * half + i;
    const double a = normed(t, head, i);
    const double b = normed(t, head, i + half);
    const double cosine = cos_sin_.at(angle);
    const double sine = cos_sin_.at(angle + half);
    return c < half ? a * cosine - b * sine : b * cosine + a * sine;
  }

  double tolerance(int64_t t, int64_t head, int64_t c) const {
    if (is_value(head) || (!case_.norms && !case_.turns)) return 0;
    const int64_t half = case_.geometry.head_dim / 2;
    const double terms = std::abs(normed(t, head, c % half)) + std::abs(normed(t, head, c % half + half));
    const double steps = 20 + (case_.norms ? static_cast<double>(half) : 0);  // the sum of squares
    return steps * kFloatEpsilon * terms + 1.01 * epsilon_of(dtype_) * std::abs(expected(t, head, c));
  }

 private:
  RopeCase case_;
  int64_t heads_;
  DType dtype_;
  std::mt19937 random_{61};
  OwnedTensor qkv_, cos_sin_, q_norm_, k_norm_, q_;
  Memory memory_;
  std::vector<int32_t> positions_, slots_;
};

TEST_P(AttentionOf, RopeKvSplitsNormsTurnsAndWrites) {
  for (const Geometry& g : {Geometry{4, 2, 64, 16, 2}, Geometry{3, 1, 10, 4, 1}}) {
    for (const RopeCase& c : {RopeCase{g, false, true}, RopeCase{g, true, true}, RopeCase{g, false, false},
                              RopeCase{g, true, false}}) {
      const RopeCall call(c, *backend_);
      for (int64_t t = 0; t < RopeCall::kTokens; ++t) {
        for (int64_t head = 0; head < call.head_count(); ++head) {
          for (int64_t i = 0; i < g.head_dim; ++i) {
            ASSERT_NEAR(call.actual(t, head, i), call.expected(t, head, i), call.tolerance(t, head, i))
                << "token " << t << " head " << head << " column " << i << ", norms " << c.norms << ", turns "
                << c.turns;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionOf, testing::ValuesIn(all_variants()), variant_label);

}  // namespace troupe::attention_test
