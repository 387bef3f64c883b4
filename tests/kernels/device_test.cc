// The base of the kernels: tensors, float conversions, aligned memory, the thread pool, the shape checks.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "kernels/backends.h"
#include "kernels/host/host_buffer.h"
#include "kernels/host/openmp.h"
#include "kernels/host/thread_pool.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::device_test {

using namespace kernel_testing;

TEST(TensorTypes, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);             // half way: to even
  EXPECT_EQ(to_bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);         // half way: to even, upwards
  EXPECT_EQ(to_bfloat16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // just above half
  EXPECT_EQ(to_bfloat16(3.4e38f).bits, 0x7f80);                    // rounds to infinity
  EXPECT_EQ(to_bfloat16(-INFINITY).bits, 0xff80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7fffffffu)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(value))) {
      ASSERT_EQ(to_bfloat16(to_float(value)).bits, bits);
    }
  }
}

TEST(TensorTypes, HalvesAreExact) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x0400), 0x1p-14f);  // smallest normal
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);  // smallest subnormal
  EXPECT_EQ(half_to_float(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(half_to_float(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
}

TEST(TensorTypes, ShapesReadAsText) {
  EXPECT_EQ(Tensor::make(nullptr, DType::kBFloat16, {3, 256}).shape_text(), "[3, 256] bfloat16");
  EXPECT_EQ(Tensor::make(nullptr, DType::kFloat16, {3, 2, 4}).bytes(), 48u);
}

TEST(HostMemory, IsAlignedAndZeroed) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{9} << 20}) {
    auto buffer = HostBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
    EXPECT_EQ((*buffer)->bytes(), bytes);
    const char* data = static_cast<const char*>((*buffer)->data());
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0);
  }
}

// Kibibytes of the huge page at `data` that the system holds as one, and of its surroundings if they are one
// mapping with it.
int64_t huge_kib_at(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(data);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= address && address < end;
    if (here && std::sscanf(line.c_str(), "AnonHugePages: %ld kB", &kib) == 1) return kib;
  }
  return 0;
}

// A loader's own buffers come and go between those of the weights, in the same heap.
TEST(HostMemory, HasHugePagesWhereFreedMemoryHadSmallOnes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const auto fresh = HostBuffer::allocate(64 * kHugePage);
  ASSERT_TRUE(fresh.ok());
  if (huge_kib_at((*fresh)->data()) < 32 * 2048) GTEST_SKIP() << "this system gives no huge pages";
  std::vector<std::unique_ptr<HostBuffer>> kept;
  for (int i = 0; i < 16; ++i) {
    void* before = std::malloc(5 * kHugePage);
    std::memset(before, 1, 5 * kHugePage);
    asm volatile("" : : "r"(before) : "memory");
    std::free(before);
    kept.push_back(*HostBuffer::allocate(kHugePage));
    EXPECT_GE(huge_kib_at(kept.back()->data()), 2048) << "buffer " << i;
    EXPECT_EQ(static_cast<const char*>(kept.back()->data())[kHugePage - 1], 0);
  }
}

TEST(HostMemory, TooMuchIsAnError) {
  EXPECT_EQ(HostBuffer::allocate(size_t{1} << 62).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(HostBuffer::allocate(std::numeric_limits<size_t>::max()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ThreadPoolOf, EveryIndexRunsOnce) {
  for (int threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      std::atomic<bool> thread_in_range{true};
      pool.parallel_for(count, [&](int64_t index, int thread) {
        runs[static_cast<size_t>(index)].fetch_add(1);
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
      EXPECT_TRUE(thread_in_range.load());
    }
  }
}

TEST(ThreadPoolOf, ManyShortLoopsSeeEachOthersWrites) {
  // Plain memory, written by the thread that claims the index and read by the next loop: the sanitizers watch
  // this too.
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 3000; ++round) {
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // let the workers sleep
    const auto count = static_cast<int64_t>(1 + round % values.size());
    pool.parallel_for(count, [&](int64_t i, int) { values[static_cast<size_t>(i)] += i; });
  }
  int64_t loops_with_63 = 0;
  for (int round = 0; round < 3000; ++round) loops_with_63 += round % 64 == 63 ? 1 : 0;
  EXPECT_EQ(values[63], 63 * loops_with_63);
}

TEST(ThreadPoolOf, ThreadsDoNotShareANumber) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> inside(3);
  std::atomic<bool> shared{false};
  pool.parallel_for(300, [&](int64_t, int thread) {
    if (inside[static_cast<size_t>(thread)].fetch_add(1) != 0) shared = true;
    inside[static_cast<size_t>(thread)].fetch_sub(1);
  });
  EXPECT_FALSE(shared.load());
}

TEST(ThreadPoolOf, OpenMpIsHeldToOneThreadInsideAndPutBackAfter) {
  omp_set_num_threads(5);
  ThreadPool pool(2);
  std::atomic<int> largest{0};
  pool.parallel_for(100, [&](int64_t, int) {
    if (omp_get_max_threads() > largest.load()) largest = omp_get_max_threads();
  });
  EXPECT_EQ(largest.load(), 1);
  EXPECT_EQ(omp_get_max_threads(), 5);
  omp_set_num_threads(1);
}

TEST(Backends, UnknownNamesAndOptionsAreRefused) {
  EXPECT_EQ(make_backend("gpu", {}).status().message(), "unknown backend 'gpu'; known: ref, cpu, cuda");
  EXPECT_EQ(make_backend("cpu", {.dtype = DType::kFloat16}).status().message(),
            "dtype of a backend must be float32 or bfloat16, got float16");
  EXPECT_EQ(make_backend("cpu", {.threads = 0}).status().message(), "threads must be at least 1, got 0");
}

TEST(Backends, DescribeThemselves) {
  EXPECT_EQ(make({"ref", {}})->description(), "ref float32, plain loops");
  EXPECT_EQ(make({"cpu", {.threads = 1, .isa = CpuIsa::kSse}})->description(),
            "cpu sse4.2 float32, products by panels, 1 thread");
}

class ShapeChecks : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  std::unique_ptr<Backend> backend_ = make({"cpu", {}});
  OwnedTensor a_{DType::kFloat32, {3, 8}};
  OwnedTensor b_{DType::kFloat32, {3, 7}};
  OwnedTensor half_{DType::kBFloat16, {3, 8}};
};

TEST_F(ShapeChecks, AMismatchPrintsBothShapes) {
  const auto weight = pack(*backend_, OwnedTensor(DType::kFloat32, {5, 8}));
  EXPECT_DEATH(backend_->matmul({b_.view(), weight.get(), a_.view(), false}),
               R"(matmul: x is \[3, 7\] float32, expected \[3, 8\] float32)");
  EXPECT_DEATH(backend_->matmul({a_.view(), weight.get(), a_.view(), false}),
               R"(matmul: out is \[3, 8\] float32, expected \[3, 5\] float32)");
  OwnedTensor out(DType::kFloat32, {3, 5});
  EXPECT_DEATH(backend_->matmul({a_.view(), weight.get(), out.view(), false, a_.view()}),
               R"(matmul: bias is \[3, 8\] float32, expected \[5\] float32)");
  EXPECT_DEATH(backend_->silu_mul({a_.view(), half_.view()}), R"(silu_mul: out is \[3, 8\] bfloat16)");
}

TEST_F(ShapeChecks, ANormedOpIsOfWhatTheNormGives) {
  const auto weight = pack(*backend_, OwnedTensor(DType::kFloat32, {5, 8}));
  OwnedTensor norm_weight(DType::kFloat32, {8}), normed(DType::kFloat32, {3, 8}),
      out(DType::kFloat32, {3, 5});
  const RmsNormParams norm{a_.view(), norm_weight.view(), 1e-5f, normed.view()};
  EXPECT_DEATH(backend_->normed_matmul(norm, {a_.view(), weight.get(), out.view()}),
               "matmul: x is not the norm's out");
  EXPECT_DEATH(backend_->normed_matmul(norm, {normed.rows(0, 2), weight.get(), out.view()}),
               R"(matmul: x is \[2, 8\] float32, expected \[3, 8\] float32)");
}

TEST_F(ShapeChecks, AnIndexOutOfRangeIsNamed) {
  const std::vector<int32_t> ids{0, 1, 3};
  OwnedTensor out(DType::kFloat32, {3, 8});
  EXPECT_DEATH(backend_->embed({ids, a_.view(), out.view()}), R"(embed: ids holds 3, expected \[0, 3\))");
  EXPECT_DEATH(backend_->embed({std::vector<int32_t>{0, 1, -1}, a_.view(), out.view()}),
               R"(embed: ids' places in drawn holds 0, expected \[0, 0\))");
  EXPECT_DEATH(backend_->gather_rows({a_.view(), ids, out.view()}), "gather_rows: rows holds 3");
}

TEST_F(ShapeChecks, AttentionNeedsItsKvAndItsBlocks) {
  OwnedTensor q(DType::kFloat32, {2, 2, 8});
  OwnedTensor out(DType::kFloat32, {2, 16});
  const std::vector<int32_t> starts{0, 2};
  const std::vector<int32_t> contexts{5};
  std::vector<int32_t> tables{0, 9};
  AttentionParams params{q.view(), starts, contexts, tables, 2, 0, 1.0f, out.view()};
  EXPECT_DEATH(backend_->attention(params), "attention: bind_kv was not called");
  OwnedTensor kv(DType::kFloat32, {2 * 8 * 4 * 3});
  backend_->bind_kv({1, 1, 8, 4}, kv.view().data, 3);
  const std::vector<BlockCopy> outside{{0, 3}}, onto_itself{{1, 1}};
  EXPECT_DEATH(backend_->copy_blocks(outside), R"(copy_blocks: to holds 3, expected \[0, 3\))");
  EXPECT_DEATH(backend_->copy_blocks(onto_itself), "copy_blocks: block 1 onto itself");
  EXPECT_DEATH(backend_->attention(params), R"(attention: block_tables holds 9, expected \[0, 3\))");
  params.block_table_stride = 1;
  EXPECT_DEATH(backend_->attention(params), "request 0 needs 2 blocks, its table row holds 1");
}

}  // namespace troupe::device_test
