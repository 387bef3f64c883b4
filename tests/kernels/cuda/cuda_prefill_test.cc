// Prompts' attention of the emulated GPU: tiles that are cut, and Hopper's warpgroups.

#include <gmock/gmock.h>

#include "tests/kernels/cuda/attention_step.h"
#ifndef TROUPE_GPU_TEST
#include "kernels/cuda/attention/attention_kernels.h"
#endif

namespace troupe::cuda_prefill_test {

using namespace cuda_testing;

// On a device with room for many more tiles than a step has.
TEST(CudaPrefill, TilesThatAreCutAreTheFormulaToo) {
#ifndef TROUPE_GPU_TEST
  emulated::set_device_size({.processors = 64});
#endif
  for (const Geometry& g : {Geometry{4, 2, 64, 16, true}, Geometry{4, 1, 128, 16}}) {
    if (kSanitized && g.head_dim == 128) continue;
    // Behind a prefix, of queries that fill no tile and several; one that is too short to be cut.
    const Step step(g, DType::kBFloat16, {{1300, 20}, {1100, 70}, {90, 70}, {900, 1}}, 47);
    for (const PrefillKernel kernel : {PrefillKernel::kTiles, PrefillKernel::kWarpgroups}) {
      const auto cut = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = kernel}});
      const OwnedTensor out = step.on(*cut);
      EXPECT_EQ(off_by(step, out), std::nullopt) << g.head_dim;
#ifndef TROUPE_GPU_TEST
      emulated::set_device_size({.processors = 1});
      EXPECT_FALSE(same_bits(step.on(*cut).view(), out.view())) << "the same sums: was it cut?";
      emulated::set_device_size({.processors = 64});
#endif
    }
  }
#ifndef TROUPE_GPU_TEST
  emulated::set_device_size({});
#endif
}

// Few tokens, at odd lengths and a block's edges, behind a prefix of one and of 8,000.
TEST(CudaPrefill, BehindShortAndLongPrefixesItIsTheFormula) {
  constexpr int32_t kPrefix = kSanitized ? 1600 : 8000;
  const Step step({2, 1, 64, 16}, DType::kBFloat16,
                  {{kPrefix + 33, 33}, {kPrefix + 16, 16}, {34, 33}, {17, 16}}, 53);
  for (const PrefillKernel kernel : {PrefillKernel::kTiles, PrefillKernel::kWarpgroups}) {
    const auto cuda = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = kernel}});
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
  }
}

#ifndef TROUPE_GPU_TEST
TEST(CudaPrefill, TilesThatAreCutTakeNoMemoryWithinTheLimits) {
  emulated::set_device_size({.processors = 64});
  const Geometry g{4, 2, 64, 16};
  const auto cuda =
      make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroups}});
  const auto reserved = cuda->reserve({kLayers, g.kv_heads, g.head_dim, g.block_size},
                                      {.tokens = 90, .requests = 3, .positions = 1300, .heads = g.heads});
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const int64_t before = cuda->device_memory()->free_bytes;
  const Step step(g, DType::kBFloat16, {{1300, 20}, {1100, 70}}, 51);
  EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
  EXPECT_EQ(cuda->device_memory()->free_bytes, before);
  emulated::set_device_size({});
}

// Tiles compute such prompts, as they do on other GPUs; but it is no matter of course.
TEST(CudaPrefill, AMapThatTheDriverRefusesIsSaid) {
  const Geometry g{4, 2, 64, 16};
  const Step step(g, DType::kBFloat16, {{100, 100}}, 54);
  const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kTiles}});
  const auto warpgroups =
      make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroups}});
  emulated::set_tensor_maps_refused(true);
  EXPECT_TRUE(same_bits(step.on(*warpgroups).view(), step.on(*tiles).view()));
  emulated::set_tensor_maps_refused(false);
  EXPECT_EQ(tiles->description(), "cuda emulated (sm_90)") << "they need none";
  EXPECT_EQ(
      warpgroups->description(),
      "cuda emulated (sm_90), prompts by tiles, not by warpgroups, about half as fast: the driver refuses "
      "a map of the KV memory: cuTensorMapEncodeTiled, CUresult 1");
  EXPECT_FALSE(same_bits(step.on(*warpgroups).view(), step.on(*tiles).view())) << "in another memory";
  EXPECT_EQ(warpgroups->description(), "cuda emulated (sm_90)");
}

// Two blocks fit a multiprocessor, and so many are planned for: with turns of 64 keys, or of 32 where its
// memory is small.
TEST(CudaPrefill, TilesFitTheChipsSharedMemoryTwice) {
  const Geometry g{4, 2, 128, 16};
  const KvLayout layout{kLayers, g.kv_heads, g.head_dim, g.block_size};
  const Step step(g, DType::kBFloat16, {{150, 150}, {100, 40}}, 55);
  const auto cuda = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kTiles}});
  emulated::set_device_size({.processors = 2});
  const OwnedTensor hoppers = step.on(*cuda);
  for (const auto& [shared_bytes, keys] : {std::pair{164 << 10, 64}, std::pair{100 << 10, 32}}) {
    emulated::set_device_size({.processors = 2, .shared_bytes = shared_bytes});
    EXPECT_EQ(cuda::tiles_at_once(layout, /*warpgroups=*/false), 2 * 2 / g.kv_heads) << shared_bytes;
    EXPECT_EQ(cuda::tiles_at_once(layout, /*warpgroups=*/true), 2 / g.kv_heads);
    for (int order = 0; order < 3; ++order) {
      set_thread_order(order);
      const OwnedTensor out = step.on(*cuda);
      EXPECT_EQ(off_by(step, out), std::nullopt) << shared_bytes;
      EXPECT_EQ(same_bits(out.view(), hoppers.view()), keys == 64) << shared_bytes;
      EXPECT_EQ(emulated::last_launch().dynamic_shared_bytes, size_t{4} * keys * (128 + 8) * 2);
    }
    set_thread_order(0);
  }
  // Less than any chip has: the device is asked.
  emulated::set_device_size({.processors = 2, .shared_bytes = 60 << 10});
  EXPECT_EQ(cuda::tiles_at_once(layout, /*warpgroups=*/false), 2 / g.kv_heads);
  emulated::set_device_size({});
  EXPECT_EQ(cuda::tiles_at_once(layout, /*warpgroups=*/false), 2 * 4 / g.kv_heads);
}
#endif

// On another GPU it is tiles that are computed.
bool takes_warpgroups(const Backend& backend) {
  return kEmulated || backend.description().find("(sm_90)") != std::string::npos;
}

TEST(CudaPrefill, AWarpgroupsPromptHasTheSameBitsHoweverItIsCut) {
  const Geometry geometries[] = {{4, 2, 64, 16, true}, {2, 2, 128, 32}};
  for (const Geometry& g : geometries) {
    const auto tiles =
        make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kTiles}});
    const auto warpgroups =
        make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroups}});
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

TEST(CudaPrefill, WarpgroupsInTurnGiveTheSameBits) {
  const auto at_once =
      make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroups}});
  const auto in_turn =
      make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroupsInTurn}});
  for (const Geometry& g : {Geometry{4, 2, 64, 16, true}, Geometry{2, 1, 128, 64}}) {
    // Tiles of which the second warpgroup has all rows, some and none, and items of one turn and of several.
    const Step step(g, DType::kBFloat16, {{333, 333}, {70, 70}, {300, 20}, {9, 9}}, 44);
    EXPECT_TRUE(same_bits(step.on(*in_turn).view(), step.on(*at_once).view())) << g.head_dim;
  }
}

#ifndef TROUPE_GPU_TEST
// One tile of 128 rows and three turns: a consumer's products of a turn are asked for together, and consumers
// alternate, in whatever order threads run, until one asks for its last turn's values.
TEST(CudaPrefill, WarpgroupsInTurnAskInTurn) {
  const Geometry g{1, 1, 64, 16};
  const Step step(g, DType::kBFloat16, {{384, 128}}, 45);
  const auto first_commits = [&](PrefillKernel kernel) {
    const auto cuda = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = kernel}});
    EXPECT_EQ(off_by(step, step.on(*cuda)), std::nullopt);
    std::vector<int> commits = emulated::last_commits();
    EXPECT_EQ(commits.size(), 2u * 2 * 3);
    commits.resize(8);
    return commits;
  };
  for (const int order : {0, 1, 2}) {
    set_thread_order(order);
    EXPECT_THAT(first_commits(PrefillKernel::kWarpgroupsInTurn),
                testing::ElementsAre(1, 2, 1, 1, 2, 2, 1, 1));
  }
  set_thread_order(1);
  EXPECT_THAT(first_commits(PrefillKernel::kWarpgroups),
              testing::Not(testing::ElementsAre(1, 2, 1, 1, 2, 2, 1, 1)));
  set_thread_order(0);
}
#endif

TEST(CudaPrefill, AWarpgroupsKeysLieInBlocksOfEverySizeThatItTakes) {
  const auto warpgroups =
      make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kWarpgroups}});
  const auto tiles = make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.prefill = PrefillKernel::kTiles}});
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

}  // namespace troupe::cuda_prefill_test
