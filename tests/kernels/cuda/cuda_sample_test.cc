// sample() on the emulated GPU against ref's full sort, and with chains of samplers against the host: the
// same tokens, whatever the order of the threads.

#include "tests/kernels/chain_cases.h"
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

TEST(CudaSample, RowsWithAChainAreDrawnAsOnTheCpu) {
  const auto cpu = make_backend("cpu", {}).value();
  const auto cuda = make_cuda(DType::kFloat32);
  std::mt19937 random(13);
  for (const int64_t vocab : {1, 33, 1000, 6000}) {
    for (int round = 0; round < (kSanitized ? 1 : 2); ++round) {
      const SampleCases cases(12, vocab, random);
      EXPECT_EQ(cases.drawn_by_chains(*cuda), cases.drawn_by_chains(*cpu)) << vocab << ", round " << round;
    }
  }
}

// A batch of rows with several samplers in any order each, with ties, without some tokens, without a number;
// some under a mask, some whose token is known.
class ChainBatch {
 public:
  ChainBatch(int64_t rows, int64_t vocab, uint32_t seed)
      : random_(seed), logits_(DType::kFloat32, {rows, vocab}), masks_(static_cast<size_t>(rows)) {
    ChainCases cases(seed);
    for (int64_t s = 0; s < rows; ++s) {
      ChainCase& c = cases_.emplace_back(cases.several(static_cast<size_t>(vocab)));
      spoil(c.logits, s);
      for (int64_t v = 0; v < vocab; ++v)
        set_element(logits_.view(), s * vocab + v, c.logits[static_cast<size_t>(v)]);
      if (s % 4 == 1) {
        auto& mask = masks_[static_cast<size_t>(s)];
        for (int64_t word = 0; word * 32 < vocab; ++word) mask.push_back(static_cast<uint32_t>(random_()));
      }
    }
  }

  struct Drawn {
    std::vector<int32_t> tokens;
    std::vector<float> mus;
    bool operator==(const Drawn&) const = default;
  };
  Drawn drawn_by(Backend& backend) const { return drawn_by(backend, 0, cases_.size()); }
  // The rows [begin, end) alone.
  Drawn drawn_by(Backend& backend, size_t begin, size_t end) const {
    std::vector<ChainCase> cases(cases_.begin() + static_cast<std::ptrdiff_t>(begin),
                                 cases_.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<SampleRow> rows;
    for (size_t i = 0; i < cases.size(); ++i) {
      SampleRow& row = rows.emplace_back(cases[i].row());
      row.mask = masks_[begin + i];
      if (cases[i].chain.mirostat == 0) row.mirostat_mu = nullptr;
      // (Not every row has a chain: a chain's place among them is not its row's.)
      if ((begin + i) % 6 == 3) row.chain = nullptr, row.mirostat_mu = nullptr;
      if ((begin + i) % 5 == 2 && row.chain != nullptr) row.known = 0;
    }
    Drawn drawn;
    drawn.tokens.resize(rows.size());
    OwnedTensor logits = logits_;
    const auto count = static_cast<int64_t>(rows.size());
    backend.sample({logits.rows(static_cast<int64_t>(begin), count), rows,
                    Tensor::make(drawn.tokens.data(), DType::kInt32, {count})});
    for (const ChainCase& c : cases) drawn.mus.push_back(c.mu);
    return drawn;
  }

 private:
  void spoil(std::vector<float>& logits, int64_t s) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (float& logit : logits) {
      if (s % 3 == 1) logit = std::round(logit);
      if (s % 6 == 5 && random_() % 2 == 0) logit = -kInf;
    }
    if (s == 7) logits[random_() % logits.size()] = std::nanf("");
    if (s == 8) logits[random_() % logits.size()] = kInf;
    if (s == 9) std::fill(logits.begin(), logits.end(), -kInf);
    if (s == 10) std::fill(logits.begin(), logits.end(), 1.5f);
  }

  std::mt19937 random_;
  OwnedTensor logits_;
  std::vector<ChainCase> cases_;
  std::vector<std::vector<uint32_t>> masks_;
};

TEST(CudaSample, SamplersInAnyOrderLeaveTheHostsTokensAndState) {
  const auto cpu = make_backend("cpu", {}).value();
  const auto cuda = make_cuda(DType::kFloat32);
  int order = 0;
  for (const int64_t vocab : {1, 2, 45, 1003, 5000, 5001, 7019}) {
    for (uint32_t round = 0; round < (kSanitized ? 1 : vocab < 5000 ? 4 : 2); ++round, ++order) {
      const ChainBatch batch(24, vocab, 17 * round + static_cast<uint32_t>(vocab));
      const auto truth = batch.drawn_by(*cpu);
      set_thread_order(order % 3);
      const auto drawn = batch.drawn_by(*cuda);
      EXPECT_EQ(drawn.tokens, truth.tokens) << vocab << ", round " << round << ", order " << order % 3;
      EXPECT_EQ(drawn.mus, truth.mus) << vocab << ", round " << round;
    }
  }
  set_thread_order(0);
}

TEST(CudaSample, ARowWithAChainDoesNotDependOnItsNeighbours) {
  const auto cuda = make_cuda(DType::kFloat32);
  const ChainBatch batch(12, 900, 3);
  const auto together = batch.drawn_by(*cuda);
  for (size_t s = 0; s < 12; ++s) {
    const auto alone = batch.drawn_by(*cuda, s, s + 1);
    EXPECT_EQ(alone.tokens.front(), together.tokens[s]) << s;
    EXPECT_EQ(alone.mus.front(), together.mus[s]) << s;
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
