// sample() on the emulated GPU against ref's full sort: the same tokens, whatever the order of the threads.

#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/sample_cases.h"

namespace troupe::cuda_sample_test {

using namespace cuda_testing;

TEST(CudaSample, DrawsWhatAFullSortDraws) {
  const auto ref = make_ref(DType::kFloat32);
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(9);
  // 9,000 is more than all threads load at once. Over 2,048 tokens top_k looks first among the threads' own
  // best.
  for (const int64_t vocab : {1, 2, 31, 33, 511, 1000, 2048, 5003, 9000}) {
    for (int round = 0; round < (kEmulated ? (kSanitized ? 1 : 6) : 40); ++round) {
      const SampleCases cases(12, vocab, random);
      const std::vector<int32_t> truth = cases.drawn_by(*ref);
      for (int order = 0; order < 3; ++order) {
        set_thread_order(order);
        EXPECT_EQ(cases.drawn_by(*cuda), truth) << vocab << ", round " << round << ", order " << order;
      }
      set_thread_order(0);
    }
  }
}

// The device edits their logits, the host draws.
TEST(CudaSample, RowsWithAChainAreDrawnAsOnTheCpu) {
  const auto cpu = make_backend("cpu", {}).value();
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(13);
  for (const int64_t vocab : {1, 33, 1000, 6000}) {
    for (int round = 0; round < (kSanitized ? 1 : 4); ++round) {
      const SampleCases cases(12, vocab, random);
      EXPECT_EQ(cases.drawn_by_chains(*cuda), cases.drawn_by_chains(*cpu)) << vocab << ", round " << round;
    }
  }
}

TEST(CudaSample, RowsUnderAMaskAreDrawnAsOnTheCpu) {
  const auto cpu = make_backend("cpu", {}).value();
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(14);
  for (const int64_t vocab : {1, 33, 1000, 6000}) {
    const SampleCases cases(12, vocab, random);
    EXPECT_EQ(cases.drawn_under_masks(*cuda), cases.drawn_under_masks(*cpu)) << vocab;
  }
}

TEST(CudaSample, ARowDoesNotDependOnItsNeighbours) {
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(10);
  const SampleCases cases(9, 700, random);
  const std::vector<int32_t> together = cases.drawn_by(*cuda);
  OwnedTensor logits = cases.logits();
  for (int64_t s = 0; s < 9; ++s) {
    int32_t alone = -1;
    cuda->sample({logits.rows(s, 1),
                  {&cases.rows()[static_cast<size_t>(s)], 1},
                  Tensor::make(&alone, DType::kInt32, {1}),
                  cases.drawn()});
    EXPECT_EQ(alone, together[static_cast<size_t>(s)]) << s;
  }
}

TEST(CudaSample, EditsAreRefsToTheBit) {
  const auto ref = make_ref(DType::kFloat32);
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(12);
  const SampleCases cases(30, 1200, random);
  std::vector<int32_t> out(30);
  const Tensor tokens = Tensor::make(out.data(), DType::kInt32, {30});
  OwnedTensor edited = cases.logits(), truth = cases.logits();
  ref->sample({truth.view(), cases.rows(), tokens, cases.drawn()});
  cuda->sample({edited.view(), cases.rows(), tokens, cases.drawn()});
  for (int64_t i = 0; i < truth.elements(); ++i) {
    EXPECT_TRUE(edited.at(i) == truth.at(i) || (std::isnan(edited.at(i)) && std::isnan(truth.at(i)))) << i;
  }
}

}  // namespace troupe::cuda_sample_test
