// The index tensors of a step: as large as its requests make them, in the memory that was reserved.

#include "worker/model/step_buffers.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace troupe::step_buffers_test {

constexpr int32_t kBlockSize = 4;

class StepBuffersOf : public testing::Test {
 protected:
  StepBuffersOf() { buffers_.reserve(/*tokens=*/16, /*requests=*/3, /*blocks=*/100); }

  // An item of `count` tokens behind `start` others, in the blocks from `first_block` on; it has one block
  // more than it needs so far.
  BatchItem item(int32_t start, int32_t count, BlockId first_block) {
    auto& ids = ids_.emplace_back(static_cast<size_t>(count), TokenId{7});
    auto& blocks = blocks_.emplace_back();
    for (int64_t i = 0; i <= blocks_for(start + count, kBlockSize); ++i)
      blocks.push_back(first_block + static_cast<BlockId>(i));
    BatchItem made;
    made.ids = ids;
    made.count = count;
    made.start = start;
    made.samples = true;
    made.blocks = blocks;
    return made;
  }
  // The step's tables.
  std::vector<int32_t> tables(const std::vector<BatchItem>& items) {
    buffers_.fill(items, kBlockSize);
    const Step step = buffers_.step();
    EXPECT_EQ(step.block_tables.size(), items.size() * static_cast<size_t>(step.block_table_stride));
    return {step.block_tables.begin(), step.block_tables.end()};
  }

  StepBuffers buffers_;
  std::deque<std::vector<TokenId>> ids_;
  std::deque<std::vector<BlockId>> blocks_;
};

TEST_F(StepBuffersOf, ATableIsAsWideAsTheLongestRequestOfTheStepInWholeSteps) {
  const auto padded = [](std::vector<std::vector<int32_t>> rows, size_t width) {
    std::vector<int32_t> all;
    for (auto& row : rows) {
      row.resize(width, 0);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  };
  EXPECT_EQ(tables({item(0, 3, 20)}), padded({{20}}, 32)) << "of 100 that a request may have";
  EXPECT_EQ(tables({item(3, 1, 20), item(8, 1, 30), item(4, 2, 40)}),
            padded({{20}, {30, 31, 32}, {40, 41}}, 32));
  EXPECT_EQ(buffers_.step().block_table_stride, 32);
  tables({item(127, 1, 20)});
  EXPECT_EQ(buffers_.step().block_table_stride, 32) << "the same for many steps";
  tables({item(128, 1, 20), item(0, 1, 80)});
  EXPECT_EQ(buffers_.step().block_table_stride, 64);
  tables({item(390, 1, 0)});
  EXPECT_EQ(buffers_.step().block_table_stride, 100) << "no more than was reserved";
  EXPECT_EQ(tables({item(4, 1, 50), item(0, 1, 60)}), padded({{50, 51}, {60}}, 32))
      << "and not as that of a step before";
}

TEST_F(StepBuffersOf, TheLargestStepStaysInTheMemoryReserved) {
  buffers_.fill(std::vector{item(0, 1, 0)}, kBlockSize);
  const int32_t* const tables_at = buffers_.step().block_tables.data();
  const int32_t longest = 100 * kBlockSize - 1;
  buffers_.fill(std::vector{item(longest, 1, 0), item(0, 1, 200), item(longest, 1, 300)}, kBlockSize);
  const Step step = buffers_.step();
  EXPECT_EQ(step.block_tables.size(), 300u);
  EXPECT_EQ(step.block_tables.data(), tables_at);
  EXPECT_EQ(step.slots[2], 399 * kBlockSize + 3);
  EXPECT_EQ(step.context_counts[1], 1);
}

}  // namespace troupe::step_buffers_test
