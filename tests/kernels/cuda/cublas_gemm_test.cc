// Products by cuBLASLt, through the emulator's stand-in for it.

#include "kernels/cuda/gemm/cublas_gemm.h"

#include <set>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/step/step_graphs.h"
#include "tests/common/temp_dir.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::cublas_gemm_test {

using namespace cuda_testing;

constexpr int kCount = 6;  // as many as are measured
// A weight's type and out's.
constexpr std::pair<DType, DType> kTypes[] = {{DType::kFloat32, DType::kFloat32},
                                              {DType::kBFloat16, DType::kFloat32},
                                              {DType::kBFloat16, DType::kBFloat16}};

// A product of the library's, and the truth of it.
struct Product {
  Product(DType dtype, DType out_dtype, int64_t rows, int64_t features, int64_t depth, unsigned seed = 1)
      : random(seed),
        x(OwnedTensor::random(dtype, {rows, depth}, random)),
        weight(OwnedTensor::random(dtype, {features, depth}, random)),
        bias(OwnedTensor::random(DType::kFloat32, {features}, random)),
        out(out_dtype, {rows, features}) {
    clear();
    for (int64_t i = 0; i < rows * features; ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double term = x.at(i / features * depth + k) * weight.at(i % features * depth + k);
        sum += term;
        magnitude += std::abs(term);
      }
      truth.push_back(sum);
      tolerance.push_back((4 * std::sqrt(static_cast<double>(depth)) + 4) * kFloatEpsilon * magnitude +
                          (out_dtype == DType::kBFloat16 ? 1.01 * kBFloat16Epsilon * std::abs(sum) : 0));
    }
  }
  // NaN in both types.
  void clear() const { std::memset(out.view().data, 0xff, out.view().bytes()); }
  cuda::ProductOperands operands() const { return {x.view(), weight.view(), out.view()}; }
  cuda::ProductOperands first(int64_t rows) const {
    return {x.rows(0, rows), weight.view(), out.rows(0, rows)};
  }
  // The first `rows` rows of out; `more`: on top of it, by index.
  std::optional<std::string> difference(int64_t rows, const std::function<double(int64_t)>& more = {}) const {
    const Tensor view = out.view();
    const bool rounded = view.dtype == DType::kBFloat16;
    for (int64_t i = 0; i < rows * view.shape[1]; ++i) {
      const double actual = rounded ? to_float(view.as<BFloat16>()[i]) : view.as<float>()[i];
      const double added = more ? more(i) : 0;
      const double expected = truth[static_cast<size_t>(i)] + added;
      const double allowed = tolerance[static_cast<size_t>(i)] + 4 * kFloatEpsilon * std::abs(expected) +
                             (rounded ? kBFloat16Epsilon * std::abs(added) : 0);
      if (std::abs(actual - expected) <= allowed) continue;  // false for NaN
      return "element " + std::to_string(i) + " is " + std::to_string(actual) + ", expected " +
             std::to_string(expected);
    }
    return std::nullopt;
  }

  std::mt19937 random;
  OwnedTensor x, weight, bias, out;
  std::vector<double> truth, tolerance;
};

std::unique_ptr<cuda::LibraryGemm> make_library() {
  auto library = cuda::make_library_products();
  EXPECT_TRUE(library.ok()) << library.status();
  return *std::move(library);
}

// Its list of algorithms grows with every shape: a number that was given means the same ever after.
TEST(CublasGemm, AnAlgorithmKeepsItsNumberWhileOthersCome) {
  const auto library = make_library();
  std::vector<std::string> texts;
  for (const auto& [rows, features, depth] :
       {std::tuple<int64_t, int64_t, int64_t>{33, 128, 128}, {64, 128, 256}, {100, 256, 64}, {40, 37, 259}}) {
    for (const auto& [dtype, out] : kTypes) {
      const Product product(dtype, out, rows, features, depth);
      const std::vector<int> numbers = library->algorithms(product.operands(), kCount);
      ASSERT_FALSE(numbers.empty());
      ASSERT_LE(numbers.size(), static_cast<size_t>(kCount));
      EXPECT_EQ(std::set<int>(numbers.begin(), numbers.end()).size(), numbers.size());
      for (const int number : numbers) {
        ASSERT_GE(number, 0);
        ASSERT_LE(number, static_cast<int>(texts.size())) << "behind the last of those that are known";
        if (number == static_cast<int>(texts.size())) texts.push_back(library->text_of(number));
      }
      for (const int number : numbers) {
        product.clear();
        ASSERT_TRUE(library->launch(nullptr, product.operands(), number)) << number;
        EXPECT_EQ(product.difference(rows), std::nullopt) << number;
      }
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(library->text_of(static_cast<int>(i)), texts[i]);
        EXPECT_EQ(library->algorithm_of(texts[i]), static_cast<int>(i));
      }
    }
  }
  EXPECT_GT(texts.size(), 16u);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
}

TEST(CublasGemm, AnAlgorithmsTextIsReadByAnother) {
  const auto one = make_library(), other = make_library();
  EXPECT_EQ(one->version(), other->version());
  const Product product(DType::kBFloat16, DType::kFloat32, 40, 128, 512);
  std::set<std::string> results;
  for (const int number : one->algorithms(product.operands(), kCount)) {
    product.clear();
    ASSERT_TRUE(one->launch(nullptr, product.operands(), number));
    const OwnedTensor out = product.out;
    product.clear();
    ASSERT_TRUE(other->launch(nullptr, product.operands(), other->algorithm_of(one->text_of(number))));
    EXPECT_TRUE(same_bits(out.view(), product.out.view()));
    results.emplace(static_cast<const char*>(out.view().data), out.view().bytes());
  }
  EXPECT_GT(results.size(), 1u) << "several algorithms differ in the order of their sums";
}

TEST(CublasGemm, RefusesATextThatIsNoAlgorithmOrAnotherProducts) {
  const auto library = make_library();
  const Product product(DType::kBFloat16, DType::kBFloat16, 40, 64, 128);
  const Product other(DType::kBFloat16, DType::kFloat32, 40, 64, 128);
  const std::string good = library->text_of(library->algorithms(product.operands(), 1).front());
  for (const std::string text : {"", "1.2.3", "x.0.0.0.0.0.0.0", "1 2 3 4 5 6 7 8"}) {
    EXPECT_EQ(library->algorithm_of(text), -1) << text;
  }
  EXPECT_EQ(library->algorithm_of(good + ".0"), -1);
  const int unknown = library->algorithm_of("1.2.3.4.5.6.7.8");
  ASSERT_GE(unknown, 0);
  EXPECT_FALSE(library->launch(nullptr, product.operands(), unknown));
  EXPECT_FALSE(library->launch(nullptr, product.operands(), unknown)) << "nor when asked again";
  EXPECT_FALSE(library->launch(nullptr, other.operands(), library->algorithm_of(good)));
  EXPECT_TRUE(std::isnan(product.out.at(0)) && std::isnan(other.out.at(0))) << "nothing was launched";
  EXPECT_TRUE(library->launch(nullptr, product.operands(), library->algorithm_of(good)));
}

TEST(CublasGemm, AFileOfWordsThatItRefusesGivesWayToItsOwnGuess) {
  const TempDir dir;
  const Product product(DType::kBFloat16, DType::kBFloat16, 40, 64, 128);
  Tuning tuning(dir.path() + "/tuning");
  tuning.put(cuda::product_key("a device", make_library()->version(), product.operands()),
             "library 1.2.3.4.5.6.7.8", 1);
  ASSERT_TRUE(tuning.save().ok());
  cuda::Products products(
      nullptr, {make_library(), nullptr},
      {.device = "a device", .cuda = {.measures = true, .tune_file = dir.path() + "/tuning"}});
  const cuda::ProductCandidate chosen = products.choose(product.operands());
  EXPECT_EQ(products.measured_count(), 0) << "its words were taken as they are";
  products.multiply(nullptr, chosen, product.operands());
  EXPECT_EQ(product.difference(40), std::nullopt);
}

// As the layers of a small model have them; 37 and 259 are of no alignment, 100 of one that few count on.
TEST(CublasGemm, MultipliesEveryNumberOfRows) {
  constexpr int64_t kRowsMax = kSanitized ? 70 : 300;
  const auto library = make_library();
  for (const auto& [features, depth] :
       {std::pair<int64_t, int64_t>{128, 64}, {64, 128}, {176, 64}, {64, 176}, {37, 100}, {20, 259}}) {
    for (const auto& [dtype, out] : kTypes) {
      const Product product(dtype, out, kRowsMax, features, depth);
      for (int64_t rows = 33; rows <= kRowsMax; ++rows) {
        product.clear();
        ASSERT_TRUE(library->launch(nullptr, product.first(rows), -1));
        ASSERT_EQ(product.difference(rows), std::nullopt) << rows << " × " << features << " × " << depth;
        ASSERT_TRUE(rows == kRowsMax || std::isnan(product.out.at(rows * features))) << "behind the rows";
      }
    }
  }
}

TEST(CublasGemm, AddsToWhatIsThere) {
  const auto library = make_library();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Product product(dtype, DType::kFloat32, 64, 128, 512);
    const auto before = OwnedTensor::random(DType::kFloat32, {64, 128}, product.random);
    cuda::ProductOperands operands = product.operands();
    operands.accumulate = true;
    for (const int number : library->algorithms(operands, kCount)) {
      std::memcpy(product.out.view().data, before.view().data, before.view().bytes());
      ASSERT_TRUE(library->launch(nullptr, operands, number));
      EXPECT_EQ(product.difference(64, [&](int64_t i) { return before.at(i); }), std::nullopt);
    }
  }
}

// The library adds a bias of out's type alone: one of float32 is rounded once, and again when it changes.
TEST(CublasGemm, RoundsABiasWhereOutIsRounded) {
  const auto library = make_library();
  for (const auto& [dtype, out] : kTypes) {
    Product product(dtype, out, 40, 64, 128);
    cuda::ProductOperands operands = product.operands();
    operands.bias = product.bias.view();
    const auto added = [&, rounds = out == DType::kBFloat16](int64_t i) {
      const double bias = product.bias.at(i % 64);
      return rounds ? double{to_float(to_bfloat16(static_cast<float>(bias)))} : bias;
    };
    for (int time = 0; time < 2; ++time) {
      ASSERT_TRUE(library->launch(nullptr, operands, -1));
      EXPECT_EQ(product.difference(40, added), std::nullopt);
      for (int64_t i = 0; i < 64; ++i) set_element(product.bias.view(), i, static_cast<float>(100 + i));
      library->forget_biases(operands.bias.data, operands.bias.bytes());
    }
  }
}

// Measured for rows that are aligned, an algorithm is asked for others of the bucket too.
TEST(CublasGemm, AnAlgorithmGivesWayToMatricesThatLieWhereItCannotReadThem) {
  const auto library = make_library();
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    Product product(dtype, DType::kFloat32, 60, 64, 128);
    const auto bytes = static_cast<int64_t>(dtype_size(dtype));
    std::vector<char> memory(product.x.view().bytes() + 64);
    char* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    cuda::ProductOperands operands = product.operands();
    size_t refused = 0;
    const std::vector<int> numbers = library->algorithms(product.operands(), kCount);
    for (const int number : numbers) {
      ASSERT_TRUE(library->launch(nullptr, product.operands(), number));
      operands.x.data = aligned + bytes;
      std::memcpy(operands.x.data, product.x.view().data, product.x.view().bytes() - 64);
      operands.x.shape[0] = operands.out.shape[0] = 50;
      product.clear();
      if (!library->launch(nullptr, operands, number)) {
        ++refused;
        EXPECT_TRUE(std::isnan(product.out.at(0)));
        ASSERT_TRUE(library->launch(nullptr, operands, -1)) << "another one does";
      }
      EXPECT_EQ(product.difference(50), std::nullopt);
    }
    EXPECT_GT(refused, 0u);
  }
}

TEST(CublasGemm, ABiasCountsAmongWhatIsToBeAligned) {
  const auto library = make_library();
  const Product product(DType::kFloat32, DType::kFloat32, 64, 128, 64);
  std::vector<float> memory(128 + 32);
  float* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4;
  cuda::ProductOperands operands = product.operands();
  for (const int64_t moved : {0, 1, 2, 4}) {
    operands.bias = Tensor::make(aligned + moved, DType::kFloat32, {128});
    for (int64_t i = 0; i < 128; ++i) aligned[i + moved] = static_cast<float>(product.bias.at(i));
    product.clear();
    ASSERT_TRUE(library->launch(nullptr, operands, -1)) << moved;
    EXPECT_EQ(product.difference(64, [&](int64_t i) { return double{aligned[i % 128 + moved]}; }),
              std::nullopt);
  }
}

TEST(CublasGemm, KeepsItsPlaceInAStreamAndInAGraph) {
  const auto library = make_library();
  emulated::set_late(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  Product product(DType::kBFloat16, DType::kBFloat16, 40, 128, 512);
  cuda::ProductOperands operands = product.operands();
  operands.bias = product.bias.view();
  const auto added = [&](int64_t i) {
    return double{to_float(to_bfloat16(static_cast<float>(product.bias.at(i % 128))))};
  };
  for (const int number : library->algorithms(operands, kCount)) {
    product.clear();
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    ASSERT_TRUE(library->launch(stream, operands, number));
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    EXPECT_TRUE(std::isnan(product.out.at(0))) << "it was not waited for";
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(product.difference(40, added), std::nullopt) << number;
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  emulated::set_late(false);
}

// Steps of many sizes take over one another's graphs: where kernels are launched in other clusters, none may.
TEST(CublasGemm, AStepsGraphIsItsLaunchesInEveryNumberOfRows) {
  const auto library = make_library();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    const Product up(DType::kBFloat16, DType::kBFloat16, 200, 512, 64);
    const Product down(DType::kBFloat16, DType::kFloat32, 200, 64, 512);
    cuda::StepGraphs graphs(stream);
    for (int64_t rows = 33; rows <= 200; rows += 7) {
      up.clear();
      down.clear();
      cuda::LaunchStream recorded(nullptr);
      recorded.list = &graphs.begin();
      for (const Product* product : {&up, &down}) {
        ASSERT_TRUE(library->launch(recorded, product->first(rows), -1));
      }
      graphs.end();
      graphs.launch();
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_EQ(up.difference(rows), std::nullopt) << rows;
      ASSERT_EQ(down.difference(rows), std::nullopt) << rows;
    }
    EXPECT_GT(graphs.instantiated_count(), 1);
    EXPECT_LT(graphs.instantiated_count(), graphs.launched_count());
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace troupe::cublas_gemm_test
