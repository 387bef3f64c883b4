// Admission fed by the workers' room: how often it looks at them, and what follows from a change.

#include "gateway/route/admission/admission_controller.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace {

using namespace testing_cluster;

class AdmissionControllerTest : public ::testing::Test {
 protected:
  // Two requests a worker, whatever the workers report.
  static AdmissionControllerOptions options() {
    AdmissionControllerOptions options;
    options.room.worker_requests = 2;
    return options;
  }
  static AdmissionRequest request() {
    AdmissionRequest request;
    request.pool = "demo";
    request.deadline = at_ms(1'000'000);
    return request;
  }
  void workers(size_t count, uint64_t epoch) {
    view_ = std::make_shared<ClusterView>(epoch, nodes(count));
    loads_.update_cluster(*view_);
  }
  AdmissionController::Workers now_there() const { return {*view_, loads_, 1}; }
  // Requests of so many let in at once.
  size_t admitted(AdmissionController& controller, size_t count, int64_t ms) {
    size_t let_in = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto answer = controller.arrive(request(), now_there(), at_ms(ms));
      if (answer.outcome == AdmissionOutcome::kAdmitted) let_in += 1;
      tickets_.push_back(answer.ticket);
    }
    return let_in + controller.advance(at_ms(ms)).size();
  }

  std::shared_ptr<const ClusterView> view_;
  LoadTracker loads_{AffinityOptions{}};
  std::vector<uint64_t> tickets_;
};

TEST_F(AdmissionControllerTest, RoomIsThatOfTheWorkers) {
  workers(3, 1);
  AdmissionController controller(options());
  EXPECT_EQ(admitted(controller, 10, 0), 6u);
  EXPECT_EQ(controller.preview(request(), now_there(), at_ms(0)).room, 6);
  controller.leave(tickets_[0], 10, at_ms(10));
  EXPECT_EQ(controller.advance(at_ms(10)).size(), 1u) << "the end of a request counts at once";
}

TEST_F(AdmissionControllerTest, RequestsThatWaitAreLetInWhenWorkersJoin) {
  workers(1, 1);
  AdmissionController controller(options());
  EXPECT_EQ(admitted(controller, 10, 0), 2u);
  workers(3, 2);
  EXPECT_TRUE(controller.advance(at_ms(20)).empty()) << "before the next look";
  controller.look(now_there(), at_ms(20));
  EXPECT_EQ(controller.advance(at_ms(20)).size(), 4u);
}

TEST_F(AdmissionControllerTest, RoomIsKeptForALookAndForgottenWithTheView) {
  workers(1, 1);
  AdmissionController controller(options());
  const auto room = [&](int64_t ms) { return controller.preview(request(), now_there(), at_ms(ms)).room; };
  EXPECT_EQ(room(0), 2);
  view_ = std::make_shared<ClusterView>(1, nodes(2));  // as only a report could change it: the same view
  loads_.update_cluster(*view_);
  EXPECT_EQ(room(49), 2);
  EXPECT_EQ(room(50), 4);
  workers(3, 2);
  EXPECT_EQ(room(51), 6) << "another view";
}

// Models are named by clients: rooms are kept of a bounded number.
TEST_F(AdmissionControllerTest, RoomsOfManyModelsAreForgottenBeforeTheNextLook) {
  workers(1, 1);
  AdmissionController controller(options());
  EXPECT_EQ(controller.preview(request(), now_there(), at_ms(0)).room, 2);
  view_ = std::make_shared<ClusterView>(1, nodes(2));  // as only a report could change it: the same view
  loads_.update_cluster(*view_);
  const auto name_models = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const std::string model = "model " + std::to_string(i);
      AdmissionRequest other = request();
      other.pool = model;
      controller.preview(other, now_there(), at_ms(1));
    }
    return controller.preview(request(), now_there(), at_ms(1)).room;
  };
  EXPECT_EQ(name_models(0, 500), 2);
  EXPECT_EQ(name_models(500, 2'500), 4) << "looked at anew";
}

TEST_F(AdmissionControllerTest, FullWorkersTakeThisGatewaysPartBesideOthers) {
  workers(2, 1);
  NodeReport report;
  report.running = 2;  // other gateways'
  for (NodeIndex node = 0; node < 2; ++node) loads_.report(node, report, at_ms(0));
  for (const int64_t gateways : {1, 2, 4}) {
    AdmissionController controller(options());
    EXPECT_EQ(controller.preview(request(), {*view_, loads_, gateways}, at_ms(0)).room, 4 / gateways);
  }
}

TEST_F(AdmissionControllerTest, ModelsHaveRoomsOfTheirOwn) {
  workers(2, 1);
  AdmissionController controller(options());
  AdmissionRequest other = request();
  other.pool = "other";
  EXPECT_EQ(controller.preview(request(), now_there(), at_ms(0)).room, 4);
  EXPECT_EQ(controller.preview(other, now_there(), at_ms(0)).room, kEndlessRoom)
      << "no request waits for an absent worker";
}

TEST_F(AdmissionControllerTest, ChangedRoomCountsAtOnceAndTheShareOfLimitsStays) {
  workers(4, 1);
  AdmissionControllerOptions limited = options();
  limited.admission.total.requests = 4;
  AdmissionController controller(limited);
  controller.share({0, 2});
  EXPECT_EQ(admitted(controller, 6, 0), 2u) << "half of the limit";
  limited.room.worker_requests = 3;
  limited.admission.total.requests = 6;
  controller.change(limited);
  EXPECT_EQ(controller.preview(request(), now_there(), at_ms(1)).room, 12);
  EXPECT_EQ(controller.advance(at_ms(1)).size(), 1u) << "half of six, two are in";
  controller.share({0, 1});
  EXPECT_EQ(controller.advance(at_ms(2)).size(), 3u);
}

TEST_F(AdmissionControllerTest, DrainRefusesWhatStillWaits) {
  workers(1, 1);
  AdmissionController controller(options());
  EXPECT_EQ(admitted(controller, 3, 0), 2u);
  controller.drain(at_ms(100));
  EXPECT_TRUE(controller.advance(at_ms(99)).empty());
  const auto ended = controller.advance(at_ms(100));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].outcome, AdmissionOutcome::kDrained);
  EXPECT_EQ(ended[0].ticket, tickets_[2]);
}

TEST(AdmissionStatus, RefusalsHaveTheStatusThatClientsRetryBy) {
  using Outcome = AdmissionOutcome;
  for (const Outcome later :
       {Outcome::kQueueFull, Outcome::kKeyQueueFull, Outcome::kWouldBeLate, Outcome::kPushedOut})
    EXPECT_EQ(admission_http_status(later), 429);
  EXPECT_EQ(admission_http_status(Outcome::kTimedOut), 503);
  EXPECT_EQ(admission_http_status(Outcome::kDrained), 503);
  EXPECT_EQ(admission_http_status(Outcome::kDeadline), 504);
  EXPECT_DEATH(admission_http_status(Outcome::kAdmitted), "not refused");
}

}  // namespace
}  // namespace troupe::route
