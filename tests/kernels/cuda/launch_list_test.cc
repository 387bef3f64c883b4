// A list of launches: all that a launch is made of counts when two are compared, and nothing else is
// launched.

#include "kernels/cuda/device/launch_list.h"

#include <bit>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/gemm/cublas_gemm.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/step/step_graphs.h"
#include "tests/common/figure.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::launch_list_test {

using namespace cuda_testing;

// Padding behind `kind` and behind `count`.
struct Values {
  char kind = 1;
  double scale = 2;
  int32_t count = 3;
};
bool operator==(const Values& a, const Values& b) {
  return a.kind == b.kind && a.scale == b.scale && a.count == b.count;
}
struct Seen {
  Values values;
  int64_t number = 0;
};

__global__ void see(Values values, int64_t number, Seen* to) {
  cuda::await_launch_before();
  *to = {values, number};
}
__global__ void see_double(Values values, int64_t number, Seen* to) {
  cuda::await_launch_before();
  *to = {values, 2 * number};
}

// A launch, and all that there is to change of one.
struct Launch {
  void (*kernel)(Values, int64_t, Seen*) = see;
  cuda::Grid grid{dim3(2, 3, 4), 32, 48};
  bool overlaps = true;
  Values values = {};
  int64_t number = 5;
  Seen* to = nullptr;
};

void add(cuda::LaunchList& list, const Launch& of) {
  cuda::LaunchStream stream(nullptr, of.overlaps);
  stream.list = &list;
  cuda::launch("see", of.kernel, of.grid, stream, of.values, of.number, of.to);
}

// The launch between two others.
cuda::LaunchList list_of(const Launch& of) {
  cuda::LaunchList list;
  add(list, {});
  add(list, of);
  add(list, {});
  return list;
}

// An object with one bit changed.
template <typename T>
T flipped(const T& value, size_t byte, int bit) {
  auto bytes = std::bit_cast<std::array<unsigned char, sizeof(T)>>(value);
  bytes[byte] = static_cast<unsigned char>(bytes[byte] ^ 1u << bit);
  return std::bit_cast<T>(bytes);
}

bool is_padding(size_t byte) {
  const auto within = [&](size_t begin, size_t size) { return byte >= begin && byte < begin + size; };
  return !within(offsetof(Values, kind), sizeof(char)) && !within(offsetof(Values, scale), sizeof(double)) &&
         !within(offsetof(Values, count), sizeof(int32_t));
}

TEST(LaunchList, EveryItemOfALaunchCounts) {
  const Launch launch;
  const cuda::LaunchList list = list_of(launch);
  EXPECT_EQ(list_of(launch), list);
  const auto expect_other = [&](const char* what, const std::function<void(Launch&)>& change) {
    Launch other = launch;
    change(other);
    EXPECT_FALSE(list_of(other) == list) << what;
  };
  expect_other("kernel", [](Launch& l) { l.kernel = see_double; });
  expect_other("grid x", [](Launch& l) { ++l.grid.blocks.x; });
  expect_other("grid y", [](Launch& l) { ++l.grid.blocks.y; });
  expect_other("grid z", [](Launch& l) { ++l.grid.blocks.z; });
  expect_other("threads", [](Launch& l) { l.grid.threads = 64; });
  expect_other("shared bytes", [](Launch& l) { l.grid.shared_bytes += size_t{1} << 32; });
  expect_other("overlap", [](Launch& l) { l.overlaps = false; });
  for (int bit = 0; bit < 8; ++bit) {
    for (size_t byte = 0; byte < sizeof(int64_t); ++byte) {
      expect_other("a number", [&](Launch& l) { l.number = flipped(l.number, byte, bit); });
      expect_other("an address", [&](Launch& l) { l.to = flipped(l.to, byte, bit); });
    }
    for (size_t byte = 0; byte < sizeof(Values); ++byte) {
      Launch other = launch;
      other.values = flipped(other.values, byte, bit);
      EXPECT_EQ(list_of(other) == list, is_padding(byte)) << "byte " << byte << " of a struct, bit " << bit;
    }
  }
  expect_other("minus zero", [](Launch& l) { l.values.scale = -l.values.scale; });
}

TEST(LaunchList, NumberAndOrderOfLaunchesCount) {
  const Launch one, two{.number = 6};
  const auto listed = [](std::initializer_list<Launch> launches) {
    cuda::LaunchList list;
    for (const Launch& launch : launches) add(list, launch);
    return list;
  };
  EXPECT_EQ(listed({}), listed({}));
  EXPECT_FALSE(listed({}) == listed({one}));
  EXPECT_FALSE(listed({one, two}) == listed({one}));
  EXPECT_FALSE(listed({one, two}) == listed({two, one}));
  cuda::LaunchList again = listed({two, two, two});
  again.clear();
  add(again, one);
  EXPECT_EQ(again, listed({one})) << "nothing is left of what it had before";
}

TEST(LaunchList, IssuesWhatWasWrittenDown) {
  Seen seen;
  Launch launch;
  launch.grid = {dim3(1), 1, 100};
  launch.values = {7, 0.5, -9};
  launch.number = std::numeric_limits<int64_t>::min();
  launch.to = &seen;
  cuda::LaunchList list;
  add(list, launch);
  EXPECT_EQ(seen.number, 0) << "not yet";
  list.issue(nullptr);
  EXPECT_EQ(seen.values, launch.values);
  EXPECT_EQ(seen.number, launch.number);
  const emulated::LaunchRecord last = emulated::last_launch();
  EXPECT_EQ(last.grid.x * last.grid.y * last.grid.z, 1u);
  EXPECT_EQ(last.block.x * last.block.y * last.block.z, 1u);
  EXPECT_EQ(last.dynamic_shared_bytes, 100u);
  EXPECT_TRUE(last.dependent);
  launch.kernel = see_double;
  launch.number = 4;
  launch.overlaps = false;
  add(list, launch);
  list.issue(nullptr);
  EXPECT_EQ(seen.number, 8) << "both, in order";
  EXPECT_FALSE(emulated::last_launch().dependent);
}

// A library's product.
class LaunchListOfProducts : public testing::Test {
 protected:
  cuda::ProductOperands operands() {
    return {.x = Tensor::make(memory_.data(), DType::kBFloat16, {40, 64}),
            .weight = Tensor::make(memory_.data() + (1 << 14), DType::kBFloat16, {32, 64}),
            .out = Tensor::make(memory_.data() + (1 << 15), DType::kFloat32, {40, 32})};
  }
  static cuda::LaunchList list_of(cuda::LibraryGemm& library, const cuda::ProductOperands& operands,
                                  int algorithm) {
    cuda::LaunchList list;
    cuda::LaunchStream stream(nullptr);
    stream.list = &list;
    EXPECT_TRUE(library.launch(stream, operands, algorithm));
    return list;
  }
  static std::unique_ptr<cuda::LibraryGemm> make_library() {
    auto library = cuda::make_library_products();
    EXPECT_TRUE(library.ok()) << library.status();
    return *std::move(library);
  }
  alignas(256) std::array<char, 1 << 17> memory_{};
};

TEST_F(LaunchListOfProducts, EveryItemOfAProductCounts) {
  const auto library = make_library(), another = make_library();
  const std::vector<int> algorithms = library->algorithms(operands(), 6);
  ASSERT_GT(algorithms.size(), 1u);
  const int first = algorithms.front();
  const cuda::LaunchList list = list_of(*library, operands(), first);
  EXPECT_EQ(list_of(*library, operands(), first), list);
  EXPECT_FALSE(list_of(*another, operands(), another->algorithm_of(library->text_of(first))) == list)
      << "another handle and workspace";
  for (size_t i = 1; i < algorithms.size(); ++i) {
    EXPECT_FALSE(list_of(*library, operands(), algorithms[i]) == list) << "algorithm " << i;
  }
  std::vector<cuda::ProductOperands> others(10, operands());
  others[0].x.data = memory_.data() + (1 << 16);
  others[1].weight.data = memory_.data() + (1 << 16);
  others[2].out.data = memory_.data() + (1 << 16);
  others[3].accumulate = true;
  others[4].bias = Tensor::make(memory_.data() + (1 << 16), DType::kFloat32, {32});
  others[5].bias = Tensor::make(memory_.data() + (1 << 16) + 256, DType::kFloat32, {32});
  others[6].x.shape[0] = others[6].out.shape[0] = 48;
  others[7].weight.shape[0] = others[7].out.shape[1] = 48;
  others[8].x.shape[1] = others[8].weight.shape[1] = 128;
  others[9].out.dtype = DType::kBFloat16;
  std::vector<cuda::LaunchList> lists{list};
  for (size_t i = 0; i < others.size(); ++i) {
    lists.push_back(list_of(*library, others[i], -1));
    EXPECT_EQ(list_of(*library, others[i], -1), lists.back()) << i;
  }
  lists[0] = list_of(*library, operands(), -1);
  for (size_t i = 0; i < lists.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(lists[i] == lists[j]) << i << " and " << j;
  }
  cuda::ProductOperands of_float = operands();
  of_float.x.dtype = of_float.weight.dtype = DType::kFloat32;
  EXPECT_FALSE(list_of(*library, of_float, -1) == lists[0]) << "type";
}

// A bias in another type is a launch of its own, once.
TEST_F(LaunchListOfProducts, ARoundedBiasIsWrittenDownWhereItIsMade) {
  const auto library = make_library();
  cuda::ProductOperands biased = operands();
  biased.out.dtype = DType::kBFloat16;
  biased.bias = Tensor::make(memory_.data() + (1 << 16), DType::kFloat32, {32});
  const cuda::LaunchList first = list_of(*library, biased, -1), second = list_of(*library, biased, -1);
  EXPECT_GT(first.byte_count(), second.byte_count());
  EXPECT_EQ(list_of(*library, biased, -1), second);
  library->forget_biases(biased.bias.data, 4);
  EXPECT_GT(list_of(*library, biased, -1).byte_count(), second.byte_count()) << "it may be another";
  biased.bias.data = memory_.data() + (1 << 16) + 1024;
  list_of(*library, biased, -1);
  EXPECT_FALSE(list_of(*library, biased, -1) == second) << "another bias";
}

// Whatever changes from step to step, or does not, every launch is the step's own.
TEST(LaunchList, AKeptGraphLaunchesNothingOfAnotherStep) {
  emulated::set_late(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    cuda::StepGraphs graphs(stream);
    std::mt19937 random(11);
    const auto one_of = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
    std::array<Seen, 4> places;
    std::vector<Launch> launches(3);
    for (Launch& launch : launches) launch = {.grid = {dim3(1), 1, 0}, .to = &places[0]};
    for (int step = 0; step < 400; ++step) {
      Launch& changed = launches[static_cast<size_t>(one_of(3))];
      if (one_of(2) == 0) {
        changed.number = one_of(2);
        changed.values.count = one_of(2);
        changed.kernel = one_of(2) == 0 ? see : see_double;
        changed.to = &places[static_cast<size_t>(one_of(4))];
        changed.overlaps = one_of(4) > 0;
      }
      std::array<Seen, 4> truth;
      places = {};
      cuda::LaunchList& list = graphs.begin();
      for (const Launch& launch : launches) {
        add(list, launch);
        const int64_t number = launch.kernel == see ? launch.number : 2 * launch.number;
        truth[static_cast<size_t>(launch.to - places.data())] = {launch.values, number};
      }
      graphs.end();
      graphs.launch();
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      for (size_t i = 0; i < places.size(); ++i) {
        ASSERT_EQ(places[i].values, truth[i].values) << "step " << step;
        ASSERT_EQ(places[i].number, truth[i].number) << "step " << step;
      }
    }
    EXPECT_GT(graphs.unchanged_count(), 180) << "every other step";
    EXPECT_LT(graphs.unchanged_count(), 300);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  emulated::set_late(false);
}

struct MostValues {
  std::array<int64_t, 19> words;  // an attention's
};
__global__ void take_most(MostValues, int64_t) {}

// A list is written and compared in every step: what one of 32 layers costs the host where nothing changed.
TEST(LaunchList, WritingAndComparingOneIsShort) {
  constexpr int kLaunches = 300, kTimes = 200;
  const auto written = [](cuda::LaunchList& list) {
    cuda::LaunchStream stream(nullptr, true);
    stream.list = &list;
    for (int i = 0; i < kLaunches; ++i) {
      MostValues values{};
      values.words[0] = i;
      cuda::launch("attention", take_most, {dim3(64, 8), 128, 0}, stream, values, i);
    }
  };
  cuda::LaunchList kept, list;
  written(kept);
  double best_us = 1e9;
  for (int time = 0; time < kTimes; ++time) {
    const auto begin = std::chrono::steady_clock::now();
    list.clear();
    written(list);
    const bool same = list == kept;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(same);
    best_us = std::min(best_us, took.count());
  }
  constexpr double kMostUs = 50;
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f us, %zu bytes", best_us, list.byte_count());
  figure("launch_list", "300 launches written down and compared", text, "< 50 us");
  if (!kSanitized) {
    EXPECT_LT(best_us, kMostUs);
  }
}

}  // namespace troupe::launch_list_test
