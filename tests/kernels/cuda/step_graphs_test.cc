// A step launched whole: the same results, few graphs made, and a read in its middle waits for it.

#include "kernels/cuda/step/step_graphs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "kernels/cuda/gemm/gemm_kernels.h"
#include "tests/common/temp_dir.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::step_graphs_test {

using namespace cuda_testing;

// Launches that a step's list gets.
cuda::LaunchStream into(cuda::LaunchList& list, bool overlaps = false) {
  cuda::LaunchStream stream(nullptr, overlaps);
  stream.list = &list;
  return stream;
}

class CudaGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    emulated::set_late(true);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    ASSERT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    emulated::set_late(false);
  }
  cudaStream_t stream_ = nullptr;
};

TEST_F(CudaGraphs, AreMadeOncePerForm) {
  std::mt19937 random(3);
  const auto x = OwnedTensor::random(DType::kFloat32, {40}, random);
  OwnedTensor out(DType::kBFloat16, {40});
  cuda::StepGraphs graphs(stream_);
  for (int step = 0; step < 12; ++step) {
    const int launches = 1 + step % 3;
    const auto recorded = into(graphs.begin());
    for (int i = 0; i < launches; ++i) {
      const int64_t count = 10 + step + i;  // another grid's worth each time
      cuda::round_vector(recorded, Tensor::make(x.view().data, DType::kFloat32, {count}),
                         Tensor::make(out.view().data, DType::kBFloat16, {count}));
    }
    graphs.end();
    graphs.launch();
  }
  EXPECT_EQ(graphs.launched_count(), 12);
  EXPECT_EQ(graphs.instantiated_count(), 3) << "one for each number of kernels";
  EXPECT_EQ(graphs.unchanged_count(), 0);
  EXPECT_EQ(out.at(0), 0) << "nobody waited for it yet";
  cudaStreamSynchronize(stream_);
  for (int64_t i = 0; i < 23; ++i) {
    EXPECT_EQ(out.at(i), double{to_float(to_bfloat16(static_cast<float>(x.at(i))))}) << i;
  }
  EXPECT_EQ(out.at(23), 0) << "of no step";
}

// A library's kernel takes the place of one of ours: as many nodes, another edge.
TEST_F(CudaGraphs, KeepOverlappingLaunchesApartFromOthers) {
  OwnedTensor x(DType::kFloat32, {4}), out(DType::kBFloat16, {4});
  cuda::StepGraphs graphs(stream_);
  for (int step = 0; step < 12; ++step) {
    cuda::LaunchList& list = graphs.begin();
    for (int i = 0; i < 3; ++i) cuda::round_vector(into(list, i == 1 + step % 2), x.view(), out.view());
    graphs.end();
    graphs.launch();
  }
  EXPECT_EQ(graphs.instantiated_count(), 2);
}

__global__ void add_one(int* to) {
  if (blockIdx.x == 0 && blockIdx.y == 0) ++*to;
}

// Launches that only a library makes: in clusters of x · y blocks, and a write of zeros.
struct ClusterLaunch {
  unsigned x, y;
  int* to;
};
void launch_cluster(cuda::LaunchList& list, unsigned x, unsigned y, int* to) {
  const auto issue = [](cudaStream_t stream, const char*, const unsigned char* values) {
    const auto of = cuda::read_values<ClusterLaunch>(values);
    cudaLaunchAttribute cluster{cudaLaunchAttributeClusterDimension, {0, {of.x, of.y, 1}, 0}};
    const cudaLaunchConfig_t config{dim3(8, 8), 1, 0, stream, &cluster, 1};
    ASSERT_EQ(cudaLaunchKernelEx(&config, add_one, of.to), cudaSuccess);
  };
  list.add("cluster", issue, ClusterLaunch{x, y, to});
}
void write_zeros(cuda::LaunchList& list, void* to) {
  const auto issue = [](cudaStream_t stream, const char*, const unsigned char* values) {
    ASSERT_EQ(cudaMemsetAsync(cuda::read_values<void*>(values), 0, 4, stream), cudaSuccess);
  };
  list.add("zeros", issue, to);
}

int64_t memory_in_use() {
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  return static_cast<int64_t>(total_bytes - free_bytes);
}

// As the library's algorithms for other numbers of rows have other clusters, in the same places.
TEST_F(CudaGraphs, KeepKernelsOfOtherClustersApart) {
  std::array<int, 3> sums{};
  cuda::StepGraphs graphs(stream_);
  for (int step = 0; step < 24; ++step) {
    cuda::LaunchList& list = graphs.begin();
    for (int i = 0; i < 3; ++i)
      launch_cluster(list, i == 1 ? 1u << step % 4 : 2u, 1, &sums[static_cast<size_t>(i)]);
    graphs.end();
    graphs.launch();
  }
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(sums, (std::array<int, 3>{24, 24, 24})) << "a kernel ran in another's clusters";
  EXPECT_EQ(graphs.instantiated_count(), 4);
}

TEST_F(CudaGraphs, AreMadeAnewWhereAClusterHasTwoDimensions) {
  std::array<int, 12> sums{};
  cuda::StepGraphs graphs(stream_);
  const int64_t before = memory_in_use();
  int64_t most = 0;
  for (int step = 0; step < 12; ++step) {
    launch_cluster(graphs.begin(), 2, 2, &sums[static_cast<size_t>(step)]);
    graphs.end();
    most = std::max(most, memory_in_use() - before);
    graphs.launch();
  }
  EXPECT_EQ(sums.back(), 0) << "the last step is not waited for";
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(sums, (std::array<int, 12>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(graphs.instantiated_count(), 12);
  launch_cluster(graphs.begin(), 2, 2, &sums.back());
  graphs.end();
  graphs.launch();
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(graphs.instantiated_count(), 12) << "what has not changed needs no update";
  EXPECT_EQ(sums.back(), 2);
  constexpr int64_t kOneGraph = 8 << 20;
  EXPECT_LE(most, 2 * kOneGraph) << "a step's, and that of the step before it";
}

// A copy in the place of a kernel: no update takes that over, while the graph before may be under way.
TEST_F(CudaGraphs, AGraphUnderWayIsNotDestroyed) {
  int sum = 0;
  OwnedTensor x(DType::kFloat32, {4}), out(DType::kBFloat16, {4});
  cuda::StepGraphs graphs(stream_);
  for (int step = 0; step < 12; ++step) {
    cuda::LaunchList& list = graphs.begin();
    if (step % 2 == 0) {
      cuda::round_vector(into(list), x.view(), out.view());
    } else {
      write_zeros(list, out.view().data);
    }
    launch_cluster(list, 1, 1, &sum);
    graphs.end();
    graphs.launch();
  }
  EXPECT_EQ(graphs.instantiated_count(), 12);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(sum, 12);
}

TEST_F(CudaGraphs, LaunchesOverlapUnlessAskedNotTo) {
  const auto overlaps = [](const BackendOptions& options) {
    const auto backend = make_cuda_with(options);
    OwnedTensor gate_up(DType::kBFloat16, {1, 16}), out(DType::kBFloat16, {1, 8});
    for (const StepKind kind : {StepKind::kDecode, StepKind::kMixed}) {
      {
        const StepScope scope(*backend, kind);
        backend->silu_mul({gate_up.view(), out.view()});
      }
      char waited;
      backend->download(&waited, out.view().data, 1);
      if (!emulated::last_launch().dependent) return false;
    }
    return true;
  };
  EXPECT_TRUE(overlaps({.dtype = DType::kBFloat16}));
  EXPECT_FALSE(overlaps({.dtype = DType::kBFloat16, .cuda = {.overlaps = false}}));
  EXPECT_FALSE(overlaps({.dtype = DType::kBFloat16, .cuda = {.reference_ops = true}}));
}

TEST_F(CudaGraphs, ForgetTheOldestForm) {
  OwnedTensor x(DType::kFloat32, {4}), out(DType::kBFloat16, {4});
  cuda::StepGraphs graphs(stream_);
  const auto step = [&](int launches) {
    const auto recorded = into(graphs.begin());
    for (int i = 0; i < launches; ++i) cuda::round_vector(recorded, x.view(), out.view());
    graphs.end();
    graphs.launch();
  };
  for (int launches = 1; launches <= 80; ++launches) step(launches);
  EXPECT_EQ(graphs.instantiated_count(), 80);
  step(80);
  EXPECT_EQ(graphs.instantiated_count(), 80);
  step(1);
  EXPECT_EQ(graphs.instantiated_count(), 81);
}

// Whether memory for a whole step's arrays was reserved.
class CudaGraphsArrays : public CudaGraphs, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Reserved, CudaGraphsArrays, ::testing::Bool());

// A result read before the step's end is there, and changes made then are not mixed up.
TEST_P(CudaGraphsArrays, AReadInTheMiddleOfAStepWaitsForIt) {
  const auto backend = make_cuda(DType::kFloat32);
  if (GetParam()) {
    const auto reserved = backend->reserve({1, 1, 64, 16}, {4, 4, 64, 1});
    ASSERT_TRUE(reserved.ok()) << reserved.status();
  }
  const auto memory = [&](size_t bytes) {
    auto made = backend->allocate(bytes);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const auto table = memory(4 * sizeof(float)), rows = memory(2 * sizeof(float));
  const std::vector<float> values{10, 11, 12, 13};
  backend->upload(table->data(), values.data(), 4 * sizeof(float));
  const Tensor x = Tensor::make(table->data(), DType::kFloat32, {4, 1});
  const Tensor out = Tensor::make(rows->data(), DType::kFloat32, {2, 1});
  std::vector<float> read(2);
  const auto downloaded = [&] {
    backend->download(read.data(), rows->data(), 2 * sizeof(float));
    return read;
  };
  const std::vector<int32_t> first{1, 3}, second{0, 2};
  {
    const StepScope scope(*backend, StepKind::kDecode);
    backend->gather_rows({x, first, out});
    EXPECT_EQ(downloaded(), (std::vector<float>{11, 13}));
    backend->gather_rows({x, second, out});
  }
  EXPECT_EQ(downloaded(), (std::vector<float>{10, 12}));
  std::unique_ptr<DeviceBuffer> other;
  {
    const StepScope scope(*backend, StepKind::kDecode);
    backend->gather_rows({x, first, out});
    other = memory(2 * sizeof(float));  // the device is waited for
    backend->gather_rows({x, second, out});
  }
  EXPECT_EQ(downloaded(), (std::vector<float>{10, 12}));
  {
    const StepScope scope(*backend, StepKind::kDecode);
    backend->gather_rows({x, first, out});
    backend->gather_rows({x, second, Tensor::make(other->data(), DType::kFloat32, {2, 1})});
  }
  EXPECT_EQ(downloaded(), (std::vector<float>{11, 13})) << "with the rows that were asked for first";
}

// The first product of a shape is measured: what is kept goes to the stream before that, and the product
// after it, where what reads it comes, too.
TEST_F(CudaGraphs, AMeasurementInTheMiddleOfAStepKeepsItsOrder) {
  constexpr int64_t kRows = 40;  // over what the own kernel takes: several of the library's are measured
  std::mt19937 random(6);
  const auto first = OwnedTensor::random(DType::kBFloat16, {kRows, 128}, random);
  const auto weight = OwnedTensor::random(DType::kBFloat16, {128, 64}, random);
  const TempDir dir;
  const std::string tuning = dir.path() + "/tuning";
  const auto out_of = [&](bool measures) {
    const auto backend =
        make_cuda_with({.dtype = DType::kBFloat16, .cuda = {.measures = measures, .tune_file = tuning}});
    const auto packed = pack(*backend, weight);
    OwnedTensor x(DType::kBFloat16, {kRows, 64}), product(DType::kBFloat16, {kRows, 128});
    OwnedTensor out(DType::kBFloat16, {kRows, 64});
    {
      const StepScope scope(*backend, StepKind::kDecode);
      backend->silu_mul({first.view(), x.view()});
      backend->matmul({.x = x.view(), .weight = packed.get(), .out = product.view()});
      backend->silu_mul({product.view(), out.view()});
    }
    char waited;
    backend->download(&waited, out.view().data, 1);
    EXPECT_TRUE(backend->save_tuning().ok());
    return out;
  };
  const auto plain = out_of(false);
  EXPECT_FALSE(std::filesystem::exists(tuning)) << "nothing is measured unasked";
  const auto measured = out_of(true);
  EXPECT_TRUE(std::filesystem::exists(tuning));
  EXPECT_TRUE(same_bits(measured.view(), plain.view())) << "the first guess, as every launch takes no time";
}

}  // namespace troupe::step_graphs_test
