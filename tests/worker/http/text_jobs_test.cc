// The threads for text in: bounds of their jobs, and what is seen of them from outside.

#include "worker/http/text_jobs.h"

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <future>
#include <thread>

#include "common/json/json.h"
#include "common/net/task_group.h"
#include "tests/worker/harness_server.h"
#include "tests/worker/spawn.h"

namespace troupe {
namespace text_jobs_test {

using std::chrono::milliseconds;

using Job = std::function<ApiResult<std::string>()>;

// A job's result, or its error's code.
Task<std::string> outcome(TextJobs& jobs, size_t bytes, Deadline deadline, Job job) {
  const auto result = co_await jobs.run<std::string>(bytes, deadline, std::move(job));
  co_return result.ok() ? result.value() : result.error().code;
}

Task<bool> joined(TaskGroup& group) {
  co_await group.join();
  co_return true;
}

class TextJobsTest : public ::testing::Test {
 protected:
  ~TextJobsTest() override {
    work_.reset();
    thread_.join();
  }

  std::future<std::string> start(TextJobs& jobs, size_t bytes, Job job,
                                 Deadline deadline = Deadline::never()) {
    return test_spawn::spawn(io_.get_executor(), outcome(jobs, bytes, deadline, std::move(job)));
  }

  asio::io_context io_{1};
  asio::executor_work_guard<Executor> work_ = asio::make_work_guard(io_);
  std::thread thread_{[this] { io_.run(); }};
};

// A job that works until it is told to stop.
ApiResult<std::string> endless() {
  const auto begin = std::chrono::steady_clock::now();
  while (count_work(1000).ok()) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(30))
      return std::string("never ended");
  }
  return ApiError::bad_field("prompt", "as a tokenizer would say it");
}

ApiResult<std::string> done() {
  return std::string("done");
}

TEST_F(TextJobsTest, ACostlyTextEndsAndTheNextOneRuns) {
  TextJobs jobs(milliseconds(20));
  for (const size_t bytes : {size_t{10}, TextJobs::kLongBytes}) {
    auto costly = start(jobs, bytes, endless);
    auto next = start(jobs, bytes, done);
    EXPECT_EQ(costly.get(), "text_timeout");
    EXPECT_EQ(next.get(), "done");
  }
}

TEST_F(TextJobsTest, ADeadlineEndsAJobAndWhatWaitedForIt) {
  TextJobs jobs(std::chrono::hours(1));
  const auto soon = Deadline::after(std::chrono::steady_clock::now(), milliseconds(30));
  auto first = start(jobs, 10, endless, soon);
  auto waiting = start(jobs, 10, done, soon);
  EXPECT_EQ(first.get(), "deadline_exceeded");
  EXPECT_EQ(waiting.get(), "deadline_exceeded");
}

Task<void> run_one(TextJobs& jobs, std::promise<void>& began, std::promise<std::string>& ended) {
  auto job = [&began] {
    began.set_value();
    return endless();
  };
  const auto result = co_await jobs.run<std::string>(10, Deadline::never(), std::move(job));
  ended.set_value(result.ok() ? result.value() : result.error().message);
}

TEST_F(TextJobsTest, AJobWhoseClientIsGoneStops) {
  TextJobs jobs(std::chrono::hours(1));
  TaskGroup group(io_.get_executor());
  std::promise<void> began;
  std::promise<std::string> ended;
  asio::post(io_, [&] { group.spawn(run_one(jobs, began, ended)); });
  began.get_future().get();
  EXPECT_GT(jobs.age(), Duration::zero());
  asio::post(io_, [&] { group.cancel(); });
  EXPECT_EQ(ended.get_future().get(), "the client is gone");
  EXPECT_EQ(start(jobs, 10, done).get(), "done");
  EXPECT_TRUE(test_spawn::spawn(io_.get_executor(), joined(group)).get());
}

TEST_F(TextJobsTest, AShortTextDoesNotWaitForALongOne) {
  TextJobs jobs(std::chrono::hours(1));
  std::promise<void> release;
  auto held = [&release]() -> ApiResult<std::string> {
    release.get_future().get();
    return std::string("late");
  };
  auto late = start(jobs, TextJobs::kLongBytes, std::move(held));
  EXPECT_EQ(start(jobs, TextJobs::kLongBytes - 1, done).get(), "done");
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(jobs.age(), milliseconds(20)) << "it has not come back";
  release.set_value();
  EXPECT_EQ(late.get(), "late");
  EXPECT_EQ(jobs.age(), Duration::zero());
}

std::string long_body(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "Once upon a time ";
  return R"({"model":"fake","max_tokens":3,"prompt":")" + text + "\"}";
}

Generator::Options with_timeout(milliseconds timeout) {
  Generator::Options options;
  options.text_timeout = timeout;
  return options;
}

TEST(TextTimeout, IsA400OfItsOwnAndTheWorkerGoesOn) {
  testing::HarnessServer server({}, with_timeout(milliseconds(10)), true, /*prompt_bytes_max=*/1 << 30);
  const auto reply = server.complete(long_body(8u << 20));
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_NE(reply.body.find("\"text_timeout\""), std::string::npos) << reply.body;
  EXPECT_EQ(server.complete(testing::HarnessServer::body(3, false)).status, 200);
}

// The text's JSON alone takes longer than twice the time that the whole text may have.
TEST(TextTimeout, AWorkerWhoseTextDoesNotComeBackIsNotReady) {
  testing::HarnessServer server({}, with_timeout(milliseconds(1)), true, /*prompt_bytes_max=*/1 << 30);
  const std::string body = long_body(15u << 20);
  std::string seen;
  for (int round = 0; round < 50 && seen.empty(); ++round) {
    auto sent = std::async(std::launch::async, [&] { return server.complete(body).status; });
    while (sent.wait_for(milliseconds(0)) != std::future_status::ready) {
      const auto reply = raw_http::ask(server.port(), "GET", "/readyz");
      if (reply.status == 503) seen = reply.body;
    }
    EXPECT_EQ(sent.get(), 400);
  }
  EXPECT_NE(seen.find("a text thread is stuck"), std::string::npos) << seen;
  EXPECT_EQ(raw_http::ask(server.port(), "GET", "/readyz").status, 200);
}

}  // namespace text_jobs_test
}  // namespace troupe
