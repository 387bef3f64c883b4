// The steps between which a device's pauses are counted. (The emulator's events have no time: their length
// needs a GPU.)

#include "kernels/cuda/step/step_gaps.h"

#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::step_gaps_test {

using namespace cuda_testing;

TEST(StepGaps, AreOneFewerThanTheSteps) {
  cuda::StepGaps gaps(nullptr);
  EXPECT_TRUE(gaps.take().empty());
  for (const size_t steps : {5u, 1u, 3u}) {
    for (size_t i = 0; i < steps; ++i) {
      gaps.begin_step();
      gaps.end_step();
    }
    EXPECT_EQ(gaps.take().size(), steps - 1) << "none to those before the last call";
  }
}

TEST(StepGaps, AreBounded) {
  cuda::StepGaps gaps(nullptr);
  for (size_t i = 0; i < cuda::StepGaps::kStepsMax + 10; ++i) {
    gaps.begin_step();
    gaps.end_step();
  }
  EXPECT_EQ(gaps.take().size(), cuda::StepGaps::kStepsMax - 1);
  gaps.end_step();  // of a step that was not counted
  EXPECT_TRUE(gaps.take().empty());
}

TEST(StepGaps, AreOfStepsLaunchedWholeAndOfAllOthers) {
  for (const StepKind kind : {StepKind::kDecode, StepKind::kMixed}) {
    for (const bool asked : {true, false}) {
      const auto backend = make_cuda_with({.dtype = DType::kFloat32, .cuda = {.times_gaps = asked}});
      OwnedTensor gate_up(DType::kFloat32, {2, 8}), out(DType::kFloat32, {2, 4});
      for (int step = 0; step < 3; ++step) {
        backend->begin_step(kind);
        backend->silu_mul({gate_up.view(), out.view()});
        backend->end_step();
      }
      EXPECT_EQ(backend->take_gaps().size(), asked ? 2u : 0u);
    }
  }
}

}  // namespace troupe::step_gaps_test
