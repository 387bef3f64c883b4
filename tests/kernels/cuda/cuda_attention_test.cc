// Attention of the emulated GPU: every kind of step, decodes and cascades.

#include <fstream>
#include <iterator>

#include "tests/common/temp_dir.h"
#include "tests/kernels/cuda/attention_step.h"

namespace troupe::cuda_attention_test {

using namespace cuda_testing;

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
  std::unique_ptr<Backend> cuda_ = make_cuda_with(
      {.dtype = GetParam().dtype,
       .cuda = {.reference_ops = GetParam().reference,
                .decode = GetParam().lanes ? DecodeKernel::kLanes : DecodeKernel::kTiles,
                .prefill = GetParam().warpgroups ? PrefillKernel::kWarpgroups : PrefillKernel::kTiles}});
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
  for (size_t i = 0; i < std::size(geometries); ++i) {
    if (kSanitized && i % 2 == 1) continue;
    const Geometry& g = geometries[i];
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

// Two personas, one with four requests, the other with six, one of them with two queries; and one request
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
      const auto cascade = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.decode = kernel}});
      const auto plain =
          make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.cascade = false, .decode = kernel}});
      const OwnedTensor out = step.on(*cascade);
      const OwnedTensor alone = step.on(*plain);
      EXPECT_EQ(off_by(step, out), std::nullopt) << g.head_dim;
      EXPECT_EQ(off_by(step, alone), std::nullopt) << g.head_dim;
      EXPECT_FALSE(same_bits(out.view(), alone.view())) << "the same sums: was there no cascade?";
      EXPECT_TRUE(same_bits(out.rows(10, 1), alone.rows(10, 1))) << "who shares nothing is not touched";
    }
  }
}

// 64 requests behind a long prefix, one of them, and as few keys as there can be.
TEST(CudaCascade, GroupsOfManyBehindALongPrefixAreTheFormula) {
  constexpr int32_t kPrefix = kSanitized ? 1600 : 8000;
  for (const int32_t others : {0, 1, 63}) {
    std::vector<Request> requests{{kPrefix + 1, 1}, {1, 1}, {2, 1}};
    for (int32_t i = 0; i < others; ++i) requests.push_back({kPrefix + 1 + i % 17, 1, 0, kPrefix});
    const Step step({2, 1, 64, 16}, DType::kBFloat16, requests, 37);
    const auto cascade = make_cuda(DType::kBFloat16);
    EXPECT_EQ(off_by(step, step.on(*cascade)), std::nullopt) << others;
  }
}

TEST(CudaDecode, GroupsOfUpTo64HeadsAreTheFormula) {
  for (const int heads : {1, 7, 16, 17, 64}) {
    const Step step({heads, 1, 64, 16}, DType::kBFloat16, {{300, 1}, {1, 1}, {40, 3}}, 38);
    const auto cuda = make_cuda(DType::kBFloat16);
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt) << heads;
  }
}

TEST(CudaDecode, LanesAndTilesSumInOtherOrders) {
  const Step step({4, 2, 64, 16}, DType::kBFloat16, {{600, 1}, {90, 1}}, 29);
  const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.decode = DecodeKernel::kTiles}});
  const auto lanes = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.decode = DecodeKernel::kLanes}});
  EXPECT_FALSE(same_bits(step.on(*tiles).view(), step.on(*lanes).view())) << "is it another kernel at all?";
  const auto unmeasured = make_cuda(DType::kBFloat16);
  EXPECT_TRUE(same_bits(step.on(*tiles).view(), step.on(*unmeasured).view()));
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
  const BackendOptions options{.dtype = DType::kBFloat16,
                               .cuda = {.measures = true, .tune_file = dir.path() + "/tuning"}};
  const Geometry g{2, 1, 64, 16};
  const Step step(g, DType::kBFloat16, kPersonas, 29);
  const auto start = [&] {
    auto cuda = make_cuda_with(options);
    const StepLimits limits{.tokens = 12, .requests = 11, .positions = 700, .heads = g.heads};
    EXPECT_TRUE(cuda->reserve({kLayers, g.kv_heads, g.head_dim, g.block_size}, limits).ok());
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
    EXPECT_TRUE(cuda->save_tuning().ok());
    std::ifstream file(options.cuda.tune_file);
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
