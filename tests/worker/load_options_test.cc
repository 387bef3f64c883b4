// Runner options that follow from the settings.

#include <gtest/gtest.h>

#include "worker/load.h"

namespace troupe::load_options_test {

TEST(RunnerOptions, GraphsAndOverlapAreOnByDefault) {
  WorkerSettings settings;
  settings.device = "cuda";
  EXPECT_TRUE(runner_options(settings, {}).graphs);
  EXPECT_TRUE(runner_options(settings, {}).overlaps);
  settings.launch_overlap = false;
  EXPECT_TRUE(runner_options(settings, {}).graphs);
  EXPECT_FALSE(runner_options(settings, {}).overlaps);
  settings.launch_overlap = true;
  settings.enforce_eager = true;
  EXPECT_FALSE(runner_options(settings, {}).graphs);
  EXPECT_FALSE(runner_options(settings, {}).overlaps);
}

}  // namespace troupe::load_options_test
