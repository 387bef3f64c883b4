#include "sim/fleet/request_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace troupe::sim {
namespace {

using testing::ElementsAre;

TEST(RequestTable, AnEarlierTryFindsNothingNorDoesTheSlotsLastRequest) {
  RequestTable table;
  SimRequest& request = table.add();
  const uint64_t first_try = request.id;
  table.begin_try(request);
  const uint64_t second_try = request.id;
  EXPECT_EQ(table.find(first_try), nullptr);
  EXPECT_EQ(table.find(second_try), &request);
  table.remove(request);
  EXPECT_EQ(table.find(second_try), nullptr);
  EXPECT_EQ(table.size(), 0u);
  SimRequest& next = table.add();
  EXPECT_EQ(&next, &request) << "the slot is used again";
  EXPECT_EQ(table.find(second_try), nullptr);
  EXPECT_EQ(table.tries(), 3u);
}

TEST(RequestTable, RequestsAtANodeAreItsIncarnationsByAge) {
  RequestTable table;
  std::vector<SimRequest*> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(&table.add());
    all.back()->node = 7;
    all.back()->at_node = true;
    all.back()->node_incarnation = 2;
  }
  all[1]->at_node = false;  // on its way
  all[2]->node_incarnation = 1;
  all[3]->node = 8;
  table.begin_try(*all[0]);  // the youngest now
  table.remove(*all[5]);
  EXPECT_THAT(table.at(7, 2), ElementsAre(all[4], all[0]));
}

}  // namespace
}  // namespace troupe::sim
