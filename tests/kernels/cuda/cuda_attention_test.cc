// Attention of the emulated GPU. The truth is ref in float32, on the same (rounded) numbers.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "tests/common/temp_dir.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::cuda_attention_test {

using namespace cuda_testing;

struct Geometry {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
  bool slopes = false;  // ALiBi
};

// A request of a step: so many keys, of which the last are its queries. The first `shared` keys (whole
// blocks) lie in the blocks of request `like`.
struct Request {
  int keys, queries;
  int like = -1;
  int shared = 0;
};

constexpr int kLayers = 2;
constexpr int kLayer = 1;

// A step: q, and KV memory with every request's keys in blocks of its own, scattered; NaN elsewhere.
class Step {
 public:
  Step(const Geometry& g, DType dtype, std::vector<Request> requests, uint32_t seed)
      : geometry_(g),
        requests_(std::move(requests)),
        random_(seed),
        layout_{kLayers, g.kv_heads, g.head_dim, g.block_size},
        q_(dtype, {0, g.heads, g.head_dim}),
        memory_(dtype, {0}) {
    for (const Request& r : requests_) {
      starts_.push_back(starts_.back() + r.queries);
      contexts_.push_back(r.keys);
      stride_ = std::max(stride_, blocks_of(r));
    }
    std::vector<int32_t> order(static_cast<size_t>(block_count()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const Request& r : requests_) {
      const int32_t others = r.shared / g.block_size;
      const int32_t own = blocks_of(r) - others;
      if (others > 0) {
        const std::vector<int32_t> like(tables_.begin() + r.like * stride_,
                                        tables_.begin() + r.like * stride_ + others);
        tables_.insert(tables_.end(), like.begin(), like.end());
      }
      tables_.insert(tables_.end(), order.end() - own, order.end());
      order.resize(order.size() - static_cast<size_t>(own));
      tables_.resize(tables_.size() + static_cast<size_t>(stride_ - blocks_of(r)), -1);
    }
    q_ = OwnedTensor::random(dtype, {tokens(), g.heads, g.head_dim}, random_);
    memory_ = OwnedTensor(dtype, {block_count() * layout_.block_elements()});
    for (int64_t i = 0; i < memory_.elements(); ++i) set_element(memory_.view(), i, std::nanf(""));
    std::normal_distribution<float> normal;
    for (size_t r = 0; r < requests_.size(); ++r) {
      for (int64_t k = 0; k < requests_[r].keys; ++k) {
        for (int64_t which = 0; which < 2; ++which) {
          for (int64_t c = 0; c < int64_t{g.kv_heads} * g.head_dim; ++c) {
            set_element(memory_.view(), place(r, k, which, c), normal(random_) * (which == 0 ? 1.5f : 1.0f));
          }
        }
      }
    }
    for (int h = 1; g.slopes && h <= g.heads; ++h) {
      slopes_.push_back(std::exp2(-8.0f * static_cast<float>(h) / static_cast<float>(g.heads)));
    }
  }

  int64_t tokens() const { return starts_.back(); }
  int64_t width() const { return int64_t{geometry_.heads} * geometry_.head_dim; }
  // Element of key (which = 0) or value (1) number k of a request: c over its heads and dims.
  int64_t place(size_t request, int64_t k, int64_t which, int64_t c) const {
    const int64_t b = geometry_.block_size;
    const int64_t block = tables_[request * static_cast<size_t>(stride_) + static_cast<size_t>(k / b)];
    const int64_t head = (int64_t{kLayer} * geometry_.kv_heads + c / geometry_.head_dim) * 2 + which;
    return block * layout_.block_elements() + (head * b + k % b) * geometry_.head_dim +
           c % geometry_.head_dim;
  }
  const OwnedTensor& memory() const { return memory_; }
  // A request becomes another step's of the same length: its queries, from that one's `first` on, and its
  // keys and values.
  void take(size_t request, const Step& other, size_t others, int64_t first = 0) {
    const int64_t queries = requests_[request].queries;
    std::memcpy(q_.rows(starts_[request], queries).data,
                other.q_.rows(other.starts_[others] + first, queries).data, q_.rows(0, queries).bytes());
    for (int64_t k = 0; k < requests_[request].keys; ++k) {
      for (int64_t i = 0; i < 2 * int64_t{geometry_.kv_heads} * geometry_.head_dim; ++i) {
        set_element(memory_.view(), place(request, k, i % 2, i / 2),
                    static_cast<float>(other.memory_.at(other.place(others, k, i % 2, i / 2))));
      }
    }
  }

  void attend(Backend& backend, const OwnedTensor& q, const OwnedTensor& memory, const Tensor& out) const {
    backend.bind_kv(layout_, memory.view().data, block_count());
    // Unused entries of a table are not looked at: -1 would be refused.
    backend.attention({.q = q.view(),
                       .query_starts = starts_,
                       .context_counts = contexts_,
                       .block_tables = tables_,
                       .block_table_stride = stride_,
                       .layer = kLayer,
                       .scale = 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim)),
                       .out = out,
                       .alibi_slopes = slopes_});
  }
  OwnedTensor on(Backend& backend) const {
    return in_every_order(backend.activation_dtype(), {tokens(), width()},
                          [&](const Tensor& out) { attend(backend, q_, memory_, out); });
  }
  // In float32; `magnitudes`: of the values' absolutes, what each weighted sum is made of.
  OwnedTensor truth(bool magnitudes) const {
    const auto backend = make_ref(DType::kFloat32);
    OwnedTensor memory = as_float(memory_);
    for (size_t r = 0; magnitudes && r < requests_.size(); ++r) {
      for (int64_t k = 0; k < requests_[r].keys; ++k) {
        for (int64_t c = 0; c < int64_t{geometry_.kv_heads} * geometry_.head_dim; ++c) {
          const int64_t at = place(r, k, 1, c);
          set_element(memory.view(), at, static_cast<float>(std::abs(memory.at(at))));
        }
      }
    }
    OwnedTensor out(DType::kFloat32, {tokens(), width()});
    attend(*backend, as_float(q_), memory, out.view());
    return out;
  }

 private:
  int32_t blocks_of(const Request& r) const {
    return (r.keys + geometry_.block_size - 1) / geometry_.block_size;
  }
  int64_t block_count() const {
    int64_t count = 3;  // and some that nobody has
    for (const Request& r : requests_) count += blocks_of(r);
    return count;
  }
  static OwnedTensor as_float(const OwnedTensor& tensor) {
    const Tensor v = tensor.view();
    auto result = v.rank == 3 ? OwnedTensor(DType::kFloat32, {v.shape[0], v.shape[1], v.shape[2]})
                              : OwnedTensor(DType::kFloat32, {v.shape[0]});
    for (int64_t i = 0; i < result.elements(); ++i) set_element(result.view(), i, element(v, i));
    return result;
  }

  Geometry geometry_;
  std::vector<Request> requests_;
  std::mt19937 random_;
  KvLayout layout_;
  std::vector<int32_t> starts_{0}, contexts_, tables_;
  int32_t stride_ = 0;
  std::vector<float> slopes_;
  OwnedTensor q_;
  OwnedTensor memory_;
};

// float32: sums in other orders. bfloat16 by tensor cores: a weight is rounded before it meets its value (as
// in PyTorch's and FlashAttention's), half a unit in the last place each, and out once.
std::optional<std::string> off_by(const Step& step, const OwnedTensor& out) {
  const OwnedTensor truth = step.truth(false);
  const OwnedTensor magnitude = step.truth(true);
  const double epsilon = epsilon_of(out.view().dtype);
  return difference(out, truth, [&](int64_t i) {
    return (64 * kFloatEpsilon + 1.1 * epsilon) * magnitude.at(i) + 1.1 * epsilon * std::abs(truth.at(i));
  });
}

// Decode of one piece, of whole pieces, of several; prompts within a tile, over tiles, behind a cached
// prefix; all of them in one step.
const std::vector<std::vector<Request>> kSteps = {
    {{1, 1}},
    {{17, 1}, {256, 1}, {257, 1}},
    {{600, 1}, {3, 3}, {2500, 1}},  // pieces for more than one round of a merge
    {{64, 64}},
    {{65, 65}, {1, 1}},
    {{150, 40}},
    {{300, 2}, {90, 70}, {31, 1}, {130, 9}},
    {{700, 150}, {513, 130}},
};

struct Kind {
  DType dtype;
  bool reference;
  bool lanes = false;       // decodes without tensor cores, where there are few heads in a group
  bool warpgroups = false;  // prompts by Hopper's products, on one
};

class CudaAttention : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Backend> cuda_ =
      make_cuda_with({.dtype = GetParam().dtype,
                      .reference_ops = GetParam().reference,
                      .decode = GetParam().lanes ? DecodeKernel::kLanes : DecodeKernel::kTiles,
                      .prefill = GetParam().warpgroups ? PrefillKernel::kWarpgroups : PrefillKernel::kTiles});
  DType dtype_ = GetParam().dtype;
};
std::string name_of(const testing::TestParamInfo<Kind>& info) {
  const Kind& kind = info.param;
  return std::string(dtype_name(kind.dtype)) + (kind.reference ? "_reference" : "") +
         (kind.lanes ? "_lanes" : "") + (kind.warpgroups ? "_warpgroups" : "");
}
INSTANTIATE_TEST_SUITE_P(Kinds, CudaAttention,
                         testing::Values(Kind{DType::kBFloat16, false}, Kind{DType::kBFloat16, true},
                                         Kind{DType::kFloat32, false},
                                         Kind{DType::kBFloat16, false, /*lanes=*/true},
                                         Kind{DType::kBFloat16, false, false, /*warpgroups=*/true}),
                         name_of);

TEST_P(CudaAttention, IsItsFormulaInEveryShapeOfStep) {
  const bool fast = dtype_ == DType::kBFloat16 && !GetParam().reference;
  const Geometry geometries[] = {{4, 2, 64, 16}, {4, 1, 128, 16, true}, {2, 2, 128, 32},
                                 {16, 1, 64, 8}, {3, 1, 80, 16},        {3, 1, 64, 12}};
  for (const Geometry& g : geometries) {
    for (size_t s = 0; s < kSteps.size(); ++s) {
      // The reference op reads every key for every query: the heaviest steps for one geometry only.
      const bool heavy = s + 1 == kSteps.size() ? g.block_size != 32 : !fast || kSanitized;
      if (heavy && s > 2 && g.head_dim != 80) continue;
      const Step step(g, dtype_, kSteps[s], 17);
      EXPECT_EQ(off_by(step, step.on(*cuda_)), std::nullopt)
          << g.heads << " heads, " << g.kv_heads << " kv heads of " << g.head_dim << ", step " << s;
    }
  }
}

TEST_P(CudaAttention, ABrokenKeyIsNoticed) {
  Step step({}, dtype_, {{200, 1}, {70, 70}}, 3);
  const OwnedTensor out = step.on(*cuda_);
  ASSERT_EQ(off_by(step, out), std::nullopt);
  for (int64_t c = 0; c < 64; ++c) set_element(step.memory().view(), step.place(0, 130, 1, c), 30.0f);
  EXPECT_NE(off_by(step, out), std::nullopt);
}

TEST_P(CudaAttention, ADecodingRequestsBitsDoNotDependOnTheOthers) {
  const Step alone({}, dtype_, {{600, 1}}, 23);
  Step beside({}, dtype_, {{90, 70}, {600, 1}, {300, 1}}, 24);
  const OwnedTensor truth = alone.on(*cuda_);
  EXPECT_FALSE(same_bits(beside.on(*cuda_).rows(70, 1), truth.view()))
      << "other content: the comparison can fail";
  beside.take(1, alone, 0);
  EXPECT_TRUE(same_bits(beside.on(*cuda_).rows(70, 1), truth.view()));
}

// Two personas, one of which four requests have, the other six, one of them with two queries; one request
// beside.
const std::vector<Request> kPersonas = {{700, 1},         {300, 1},         {640, 1, 0, 608},
                                        {700, 1, 0, 608}, {301, 1, 1, 256}, {290, 2, 1, 256},
                                        {609, 1, 0, 608}, {280, 1, 1, 272}, {500, 1, 1, 272},
                                        {90, 1},          {299, 1, 1, 256}};

TEST(CudaCascade, GivesWhatEachWouldGetAlone) {
  const Geometry geometries[] = {{8, 2, 64, 16}, {4, 1, 128, 16, true}, {2, 2, 128, 8}};
  for (const Geometry& g : geometries) {
    const Step step(g, DType::kBFloat16, kPersonas, 29);
    for (const DecodeKernel kernel : {DecodeKernel::kTiles, DecodeKernel::kLanes}) {
      const auto cascade = make_cuda_with({.dtype = DType::kBFloat16, .decode = kernel});
      const auto plain = make_cuda_with({.dtype = DType::kBFloat16, .cascade = false, .decode = kernel});
      const OwnedTensor out = step.on(*cascade);
      const OwnedTensor alone = step.on(*plain);
      EXPECT_EQ(off_by(step, out), std::nullopt) << g.head_dim;
      EXPECT_EQ(off_by(step, alone), std::nullopt) << g.head_dim;
      EXPECT_FALSE(same_bits(out.view(), alone.view())) << "the same sums: was there no cascade?";
      EXPECT_TRUE(same_bits(out.rows(10, 1), alone.rows(10, 1))) << "who shares nothing is not touched";
    }
  }
}

TEST(CudaDecode, LanesAndTilesSumInOtherOrders) {
  const Step step({4, 2, 64, 16}, DType::kBFloat16, {{600, 1}, {90, 1}}, 29);
  const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .decode = DecodeKernel::kTiles});
  const auto lanes = make_cuda_with({.dtype = DType::kBFloat16, .decode = DecodeKernel::kLanes});
  EXPECT_FALSE(same_bits(step.on(*tiles).view(), step.on(*lanes).view())) << "is it another kernel at all?";
  const auto unmeasured = make_cuda(DType::kBFloat16);
  EXPECT_TRUE(same_bits(step.on(*tiles).view(), step.on(*unmeasured).view()));
}

// On another GPU it is tiles that are computed.
bool takes_warpgroups(const Backend& backend) {
  return kEmulated || backend.description().find("(sm_90)") != std::string::npos;
}

TEST(CudaPrefill, AWarpgroupsPromptHasTheSameBitsHoweverItIsCut) {
  const Geometry geometries[] = {{4, 2, 64, 16, true}, {2, 2, 128, 32}};
  for (const Geometry& g : geometries) {
    const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .prefill = PrefillKernel::kTiles});
    const auto warpgroups =
        make_cuda_with({.dtype = DType::kBFloat16, .prefill = PrefillKernel::kWarpgroups});
    const Step whole(g, DType::kBFloat16, {{333, 333}}, 41);
    const OwnedTensor out = whole.on(*warpgroups);
    EXPECT_EQ(off_by(whole, out), std::nullopt) << g.head_dim;
    if (takes_warpgroups(*warpgroups)) {
      EXPECT_FALSE(same_bits(out.view(), whole.on(*tiles).view())) << "is it another kernel at all?";
    }
    const auto unmeasured = make_cuda(DType::kBFloat16);
    EXPECT_TRUE(same_bits(whole.on(*tiles).view(), whole.on(*unmeasured).view()));
    for (const int32_t queries : {20, 100, 133}) {
      Step end(g, DType::kBFloat16, {{40, 40}, {333, queries}}, 42);
      end.take(1, whole, 0, 333 - queries);
      EXPECT_TRUE(same_bits(end.on(*warpgroups).rows(40, queries), out.rows(333 - queries, queries)))
          << queries;
    }
  }
}

TEST(CudaPrefill, AWarpgroupsKeysLieInBlocksOfEverySizeThatItTakes) {
  const auto warpgroups = make_cuda_with({.dtype = DType::kBFloat16, .prefill = PrefillKernel::kWarpgroups});
  const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .prefill = PrefillKernel::kTiles});
  const Geometry geometries[] = {{2, 1, 128, 8}, {2, 1, 128, 64}, {2, 1, 64, 128}, {2, 1, 64, 8}};
  for (const Geometry& g : geometries) {
    // Blocks that are filled in part, and the turn's first.
    const Step step(g, DType::kBFloat16, {{261, 40}, {130, 130}, {256, 66}}, 43);
    const OwnedTensor out = step.on(*warpgroups);
    EXPECT_EQ(off_by(step, out), std::nullopt) << g.block_size;
    if (takes_warpgroups(*warpgroups)) {
      EXPECT_FALSE(same_bits(out.view(), step.on(*tiles).view())) << "is it another kernel at all?";
    }
  }
}

#ifndef TROUPE_GPU_TEST
TEST(CudaCascade, AStepWithinTheLimitsTakesNoMemory) {
  const Geometry g{8, 2, 64, 16};
  const auto cuda = make_cuda(DType::kBFloat16);
  const auto reserved = cuda->reserve({kLayers, g.kv_heads, g.head_dim, g.block_size},
                                      {.tokens = 12, .requests = 11, .positions = 700, .heads = g.heads});
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const int64_t before = cuda->device_memory()->free_bytes;
  EXPECT_GT(*reserved, 0);
  for (uint32_t seed = 40; seed < 43; ++seed) {
    const Step step(g, DType::kBFloat16, kPersonas, seed);
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
  }
  EXPECT_EQ(cuda->device_memory()->free_bytes, before);
}

// On the emulator no time means anything; that it is taken and kept does.
TEST(CudaDecode, WhatIsFasterIsMeasuredOnceAndKept) {
  const TempDir dir;
  const BackendOptions options{
      .dtype = DType::kBFloat16, .measures = true, .tune_file = dir.path() + "/tuning"};
  const Geometry g{2, 1, 64, 16};
  const Step step(g, DType::kBFloat16, kPersonas, 29);
  const auto start = [&] {
    auto cuda = make_cuda_with(options);
    const StepLimits limits{.tokens = 12, .requests = 11, .positions = 700, .heads = g.heads};
    EXPECT_TRUE(cuda->reserve({kLayers, g.kv_heads, g.head_dim, g.block_size}, limits).ok());
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
    EXPECT_TRUE(cuda->save_tuning().ok());
    std::ifstream file(options.tune_file);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string kept = start();
  EXPECT_NE(kept.find("cascade, 2 heads of 64, 1 of keys"), std::string::npos) << kept;
  EXPECT_NE(kept.find("\t2:"), std::string::npos) << kept;
  EXPECT_NE(kept.find("decode, 2 heads of 64, 1 of keys"), std::string::npos) << kept;
  EXPECT_NE(kept.find("prefill, 2 heads of 64, 1 of keys"), std::string::npos) << kept;
  EXPECT_EQ(start(), kept);
}
#endif

TEST(CudaCascade, ABrokenSharedKeyIsNoticed) {
  Step step({8, 2, 64, 16}, DType::kBFloat16, kPersonas, 31);
  const auto cuda = make_cuda(DType::kBFloat16);
  const OwnedTensor out = step.on(*cuda);
  for (int64_t c = 0; c < 64; ++c) set_element(step.memory().view(), step.place(0, 3, 1, c), 60.0f);
  EXPECT_NE(off_by(step, out), std::nullopt);
}

TEST(CudaDecode, WarpsWithoutKeysAndRowsWithoutScoresLeaveNoNaN) {
  // 5 keys: three of a piece's four warps see none.
  const auto cuda = make_cuda(DType::kBFloat16);
  Step step({}, DType::kBFloat16, {{5, 1}, {300, 1}, {20, 20}}, 4);
  const OwnedTensor out = step.on(*cuda);
  for (int64_t i = 0; i < out.elements(); ++i) ASSERT_TRUE(std::isfinite(out.at(i))) << i;
}

}  // namespace troupe::cuda_attention_test
