#include "gateway/route/admission/pool_capacity.h"

#include <gtest/gtest.h>

namespace troupe::route {
namespace pool_room_test {

constexpr TimePoint kNow = TimePoint{} + std::chrono::seconds(1);

NodeLoad reported(int64_t running, int64_t queued, int64_t max_num_seqs) {
  NodeLoad load;
  load.reported = true;
  load.report.running = running;
  load.report.queued = queued;
  load.report.max_num_seqs = max_num_seqs;
  return load;
}

TEST(PoolRoom, WorkerIsFullWithItsBatchAndAFewToFollow) {
  const PoolRoomOptions options;
  EXPECT_EQ(node_room(options, reported(0, 0, 64)), 80);
  EXPECT_EQ(node_room(options, reported(64, 16, 64)), 80) << "as many wait there as may";
  EXPECT_EQ(node_room(options, reported(20, 60, 64)), 36) << "20 are all that it can run";
  EXPECT_EQ(node_room(options, reported(1, 5, 1)), 2);
  EXPECT_EQ(node_room({.fill = 1}, reported(2, 3, 4)), 3) << "never none";
}

TEST(PoolRoom, UsesConfigurationWithoutReports) {
  EXPECT_EQ(node_room({}, {}), 256);
  EXPECT_EQ(node_room({.foreign_requests = 8}, {}), 8);
  EXPECT_EQ(node_room({.foreign_requests = 0}, {}), kEndlessRoom);
  EXPECT_EQ(node_room({.worker_requests = 10}, reported(64, 90, 64)), 10);
  EXPECT_EQ(node_room({.fill = 0}, reported(64, 90, 64)), kEndlessRoom);
}

class Fleet : public testing::Test {
 protected:
  Fleet() : loads({}) {
    std::vector<NodeView> nodes(3);
    for (size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].id = "node-" + std::to_string(i);
      nodes[i].state = i < 2 ? NodeState::kAlive : NodeState::kDraining;
      nodes[i].models = {"demo"};
    }
    view = ClusterView(1, nodes);
    loads.update_cluster(view);
    for (NodeIndex node = 0; node < 3; ++node) report(node, 0);
  }
  void report(NodeIndex node, int64_t running) {
    NodeReport told;
    told.running = running;
    told.max_num_seqs = 64;
    loads.report(node, told, kNow);
  }
  ClusterView view;
  LoadTracker loads;
};

TEST_F(Fleet, RoomIsThatOfRoutableWorkers) {
  EXPECT_EQ(pool_room({}, view, loads, "demo", 1), 160);
  EXPECT_EQ(pool_room({}, view, loads, "unknown", 1), kEndlessRoom);
}

TEST_F(Fleet, OtherGatewaysLeaveAtLeastAPart) {
  report(0, 30);
  EXPECT_EQ(pool_room({}, view, loads, "demo", 2), 130);
  report(1, 64);
  report(0, 64);
  EXPECT_EQ(pool_room({}, view, loads, "demo", 2), 80) << "our half, whatever they do";
  EXPECT_EQ(pool_room({}, view, loads, "demo", 1), 160) << "of one gateway all is its own";
}

}  // namespace pool_room_test
}  // namespace troupe::route
