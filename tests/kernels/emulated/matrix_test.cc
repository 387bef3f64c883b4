// Fragments, ldmatrix and cp.async, put together as our products do.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <set>
#include <vector>

#include "kernels/cuda/device/ptx.cuh"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/emulator_testing.h"

namespace troupe::emulated_matrix_test {

using namespace emulator_testing;

constexpr int kM = 16, kN = 8, kK = 16;

class EmulatedMatrices : public testing::TestWithParam<Order> {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    set_order(GetParam(), 3);
  }
  void TearDown() override { set_order(Order::kForward); }
};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedMatrices,
                         testing::Values(Order::kForward, Order::kReverse, Order::kShuffled));

// One warp: d [16, 8] += a [16, 16] b, with b as [n][k] or, `b_by_k`, as [k][n].
template <bool b_by_k>
__global__ void multiply_tile(const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  TROUPE_DYNAMIC_SHARED(bytes);
  __nv_bfloat16* a_tile = reinterpret_cast<__nv_bfloat16*>(bytes);
  __nv_bfloat16* b_tile = a_tile + kM * kK;
  const int lane = static_cast<int>(threadIdx.x);
  cuda::cp_async_16(a_tile + lane * 8, a + lane * 8, true);
  if (lane < 16) cuda::cp_async_16(b_tile + lane * 8, b + lane * 8, true);
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
  __syncwarp();
  uint32_t a_registers[4], b_registers[2];
  // Matrices 0 to 3: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15.
  cuda::ldmatrix_x4(a_registers, a_tile + lane % 16 * kK + lane / 16 * 8);
  if constexpr (b_by_k) {
    cuda::ldmatrix_x2_trans(b_registers, b_tile + lane % 16 * kN);
  } else {
    cuda::ldmatrix_x2(b_registers, b_tile + lane % 8 * kK + lane / 8 % 2 * 8);
  }
  float sums[4];
  const int row = lane / 4, column = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) sums[i] = d[(row + i / 2 * 8) * kN + column + i % 2];
  cuda::mma_m16n8k16_bf16(sums, a_registers, b_registers);
  for (int i = 0; i < 4; ++i) d[(row + i / 2 * 8) * kN + column + i % 2] = sums[i];
}

template <bool b_by_k>
void check_product() {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const auto a = random_values(kM * kK, seed);
    const auto b = random_values(kN * kK, seed + 100);
    std::vector<float> d(kM * kN), expected(kM * kN);
    for (size_t i = 0; i < d.size(); ++i) d[i] = expected[i] = static_cast<float>(i) / 16.0f;
    for (int m = 0; m < kM; ++m) {
      for (int n = 0; n < kN; ++n) {
        float& sum = expected[static_cast<size_t>(m * kN + n)];
        for (int k = 0; k < kK; ++k) {
          const int at = b_by_k ? k * kN + n : n * kK + k;
          sum += __bfloat162float(a[static_cast<size_t>(m * kK + k)]) *
                 __bfloat162float(b[static_cast<size_t>(at)]);
        }
      }
    }
    run(1, 32, (kM * kK + kN * kK) * 2, multiply_tile<b_by_k>, a.data(), b.data(), d.data());
    ASSERT_EQ(d, expected);
  }
}

TEST_P(EmulatedMatrices, ProductOfAByRowsAndBByColumns) {
  check_product<false>();
}
TEST_P(EmulatedMatrices, ProductOfAByRowsAndBByRowsTransposedOnLoading) {
  check_product<true>();
}

__global__ void load_four_transposed(const uint16_t* in, uint32_t* out) {
  TROUPE_DYNAMIC_SHARED(bytes);
  uint16_t* tile = reinterpret_cast<uint16_t*>(bytes);
  for (int i = 0; i < 8; ++i) tile[threadIdx.x * 8 + i] = in[threadIdx.x * 8 + i];
  __syncthreads();
  uint32_t registers[4];
  cuda::ldmatrix_x4_trans(registers, tile + threadIdx.x * 8);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = registers[i];
}

TEST_P(EmulatedMatrices, FourMatricesTransposed) {
  std::vector<uint16_t> in(4 * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> out(32 * 4);
  run(1, 32, 512, load_four_transposed, in.data(), out.data());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const uint32_t low = matrix * 64 + lane % 4 * 2 * 8 + lane / 4;
      ASSERT_EQ(out[lane * 4 + matrix], low | (low + 8) << 16);
    }
  }
}

__global__ void load_off_by_two(uint32_t* out) {
  TROUPE_DYNAMIC_SHARED(bytes);
  uint32_t registers[2];
  cuda::ldmatrix_x2(registers, bytes + threadIdx.x % 16 * 16 + 2);
  out[threadIdx.x] = registers[0];
}

TEST_P(EmulatedMatrices, ARowThatIsNotAlignedEndsTheProcess) {
  std::vector<uint32_t> out(32);
  EXPECT_DEATH(run(1, 32, 1024, load_off_by_two, out.data()), "ldmatrix from a row that is not aligned");
}

// Three stages of a pipeline of `stages_left` in flight; the last copy is not valid.
template <int stages_left>
__global__ void copy_in_stages(const uint4* in, uint4* out) {
  TROUPE_DYNAMIC_SHARED(bytes);
  uint4* stages = reinterpret_cast<uint4*>(bytes);
  const unsigned thread = threadIdx.x;
  for (unsigned stage = 0; stage < 3; ++stage) {
    const bool valid = stage < 2;
    cuda::cp_async_16(&stages[stage * 32 + thread], valid ? in + stage * 32 + thread : nullptr, valid);
    cuda::cp_async_commit();
  }
  cuda::cp_async_wait<stages_left>();
  __syncthreads();
  for (unsigned stage = 0; stage < 3; ++stage) {
    out[stage * 32 + thread] = stages[stage * 32 + (thread + 1) % 32];
  }
}

// How many of the three stages have landed; all threads of a stage agree.
template <int stages_left>
int stages_landed() {
  std::vector<uint4> in(64, make_uint4(1, 2, 3, 4)), out(96);
  run(1, 32, 96 * 16, copy_in_stages<stages_left>, in.data(), out.data());
  int landed = 0;
  for (size_t stage = 0; stage < 3; ++stage) {
    std::set<unsigned> seen;
    for (size_t i = 0; i < 32; ++i) seen.insert(out[stage * 32 + i].y);
    EXPECT_EQ(seen.size(), 1u);
    if (*seen.begin() == ~0u) continue;
    EXPECT_EQ(*seen.begin(), stage < 2 ? 2u : 0u);
    ++landed;
  }
  return landed;
}

TEST_P(EmulatedMatrices, CopiesLandAtTheWaitForTheirGroup) {
  EXPECT_EQ(stages_landed<0>(), 3);
  EXPECT_EQ(stages_landed<1>(), 2);
  EXPECT_EQ(stages_landed<2>(), 1);
  EXPECT_EQ(stages_landed<3>(), 0);
}

__global__ void forget_to_wait(const float4* in, float* out) {
  TROUPE_DYNAMIC_SHARED(bytes);
  float4* tile = reinterpret_cast<float4*>(bytes);
  cuda::cp_async_16(&tile[threadIdx.x], &in[threadIdx.x], true);
  cuda::cp_async_commit();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x].x;
}

TEST_P(EmulatedMatrices, AKernelThatForgetsToWaitComputesNaN) {
  const std::vector<float4> in(32, make_float4(1, 2, 3, 4));
  std::vector<float> out(32);
  run(1, 32, 512, forget_to_wait, in.data(), out.data());
  for (float value : out) EXPECT_TRUE(std::isnan(value));
}

// A ring of stages as in our products: many copies, each stage written again while the next are in flight.
__global__ void stream_through_ring(const int4* in, int* out, int count) {
  constexpr int kStages = 3;
  TROUPE_DYNAMIC_SHARED(bytes);
  int4* ring = reinterpret_cast<int4*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  const auto request = [&](int i) {
    if (i < count) cuda::cp_async_16(&ring[i % kStages * 64 + thread], &in[i * 64 + thread], true);
    cuda::cp_async_commit();
  };
  for (int i = 0; i < kStages - 1; ++i) request(i);
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    cuda::cp_async_wait<kStages - 2>();
    __syncthreads();
    sum += ring[i % kStages * 64 + (thread + 33) % 64].z;
    request(i + kStages - 1);
  }
  out[thread] = sum;
}

TEST_P(EmulatedMatrices, ARingOfStagesStreams) {
  constexpr int kCount = 100;
  std::vector<int4> in(kCount * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = {0, 0, static_cast<int>(i / 64 * (i % 64)), 0};
  std::vector<int> out(64);
  run(1, 64, 3 * 64 * 16, stream_through_ring, in.data(), out.data(), kCount);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], 4950 * ((i + 33) % 64));
}

}  // namespace troupe::emulated_matrix_test
