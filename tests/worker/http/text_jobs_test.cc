// The threads for text in: bounds of their jobs, and what is seen of them from outside.

#include "worker/http/text_jobs.h"

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

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
    EXPECT_EQ(start(jobs, bytes, endless).get(), "text_timeout");
    EXPECT_EQ(start(jobs, bytes, done).get(), "done");
  }
}

// Tells which thread the last copy of a job ends on.
struct Ending {
  ~Ending() {
    if (on != nullptr) *on = std::this_thread::get_id();
  }
  std::thread::id* on;
};

TEST(TextJobsExecutor, MayBeGoneOnceAJobHasItsResult) {
  TextJobs jobs(milliseconds(2000));
  for (int i = 0; i < 500; ++i) {
    std::thread::id ended_on;
    asio::io_context io{1};
    auto job = [ending = std::make_shared<Ending>(&ended_on)]() { return done(); };
    auto result =
        test_spawn::spawn(io.get_executor(), outcome(jobs, 10, Deadline::never(), Job(std::move(job))));
    io.run();
    EXPECT_EQ(result.get(), "done");
    ASSERT_EQ(ended_on, std::this_thread::get_id()) << "the job's thread held on to it, in turn " << i;
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

// A job that counts nothing, so that no bound ends it, until it is released.
struct Stuck {
  Job job() {
    return [this] {
      began.set_value();
      released.get_future().get();
      return done();
    };
  }
  std::promise<void> began, released;
};

TEST_F(TextJobsTest, AJobBehindOneThatDoesNotComeBackEndsAtItsDeadline) {
  TextJobs jobs(std::chrono::hours(1));
  Stuck stuck;
  auto first = start(jobs, 10, stuck.job());
  stuck.began.get_future().get();
  bool ran = false;
  auto runs = [&ran] {
    ran = true;
    return done();
  };
  auto waiting = start(jobs, 10, runs, Deadline::after(std::chrono::steady_clock::now(), milliseconds(30)));
  auto patient = start(jobs, 10, done);
  ASSERT_EQ(waiting.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(waiting.get(), "deadline_exceeded");
  stuck.released.set_value();
  EXPECT_EQ(first.get(), "done");
  EXPECT_EQ(patient.get(), "done");
  EXPECT_FALSE(ran) << "nobody waits for it";
}

TEST_F(TextJobsTest, AJobBehindOneThatIsStuckIsSentAwayAndSoIsTheNext) {
  for (const size_t bytes : {size_t{10}, TextJobs::kLongBytes}) {
    const bool is_long = bytes >= TextJobs::kLongBytes;
    TextJobs jobs(milliseconds(50));
    Stuck stuck;
    auto first = start(jobs, bytes, stuck.job());
    stuck.began.get_future().get();
    auto waiting = start(jobs, bytes, done);
    ASSERT_EQ(waiting.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(waiting.get(), "unavailable");
    EXPECT_EQ(start(jobs, bytes, done).get(), "unavailable") << "at once";
    EXPECT_EQ(jobs.is_stuck(TextJobs::Kind::kShort), !is_long);
    EXPECT_EQ(jobs.is_stuck(TextJobs::Kind::kLong), is_long);
    const size_t others = is_long ? 10 : TextJobs::kLongBytes;
    EXPECT_EQ(start(jobs, others, done).get(), "done");
    stuck.released.set_value();
    EXPECT_EQ(first.get(), "done");
    EXPECT_EQ(start(jobs, bytes, done).get(), "done");
  }
}

Task<void> run_waiting(TextJobs& jobs, Job job, std::promise<std::string>& ended) {
  const auto result = co_await jobs.run<std::string>(10, Deadline::never(), std::move(job));
  ended.set_value(result.ok() ? result.value() : result.error().message);
}

TEST_F(TextJobsTest, AJobThatWaitsEndsWithItsClient) {
  TextJobs jobs(std::chrono::hours(1));
  TaskGroup group(io_.get_executor());
  Stuck stuck;
  auto first = start(jobs, 10, stuck.job());
  stuck.began.get_future().get();
  std::promise<std::string> ended;
  bool ran = false;
  auto runs = [&ran] {
    ran = true;
    return done();
  };
  asio::post(io_, [&] { group.spawn(run_waiting(jobs, runs, ended)); });
  asio::post(io_, [&] { group.cancel(); });
  auto end = ended.get_future();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(end.get(), "the client is gone");
  stuck.released.set_value();
  EXPECT_EQ(first.get(), "done");
  EXPECT_EQ(start(jobs, 10, done).get(), "done");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(test_spawn::spawn(io_.get_executor(), joined(group)).get());
}

// Jobs whose deadlines fall together with their turns: each ends once, with its result or without.
TEST_F(TextJobsTest, EveryJobEndsOnceWhateverComesFirst) {
  TextJobs jobs(std::chrono::hours(1));
  std::vector<std::future<std::string>> ends;
  for (int i = 0; i < 2000; ++i) {
    auto works = [] {
      for (int n = 0; n < 20; ++n) {
        if (!count_work(100'000).ok()) break;
      }
      return done();
    };
    const auto deadline = Deadline::after(std::chrono::steady_clock::now(), std::chrono::microseconds(i));
    ends.push_back(start(jobs, 10, works, deadline));
  }
  for (auto& end : ends) {
    const std::string how = end.get();
    EXPECT_TRUE(how == "done" || how == "deadline_exceeded") << how;
  }
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
  EXPECT_GT(jobs.age(TextJobs::Kind::kShort), Duration::zero());
  asio::post(io_, [&] { group.cancel(); });
  EXPECT_EQ(ended.get_future().get(), "the client is gone");
  EXPECT_EQ(start(jobs, 10, done).get(), "done");
  EXPECT_TRUE(test_spawn::spawn(io_.get_executor(), joined(group)).get());
}

TEST_F(TextJobsTest, AShortTextDoesNotWaitForALongOne) {
  TextJobs jobs(std::chrono::hours(1));
  std::promise<void> began, release;
  auto held = [&began, &release]() -> ApiResult<std::string> {
    began.set_value();
    release.get_future().get();
    return std::string("late");
  };
  auto late = start(jobs, TextJobs::kLongBytes, std::move(held));
  EXPECT_EQ(start(jobs, TextJobs::kLongBytes - 1, done).get(), "done");
  began.get_future().get();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(jobs.age(TextJobs::Kind::kLong), milliseconds(20)) << "it has not come back";
  EXPECT_EQ(jobs.age(TextJobs::Kind::kShort), Duration::zero());
  release.set_value();
  EXPECT_EQ(late.get(), "late");
  EXPECT_EQ(jobs.age(TextJobs::Kind::kLong), Duration::zero());
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

// The answer of /readyz that has `part` in it, while a text's JSON alone takes longer than twice the time
// that the whole text may have.
raw_http::Reply readyz_beside_a_slow_text(const testing::HarnessServer& server, const std::string& part) {
  const std::string body = long_body(15u << 20);
  raw_http::Reply seen;
  for (int round = 0; round < 50 && seen.body.empty(); ++round) {
    auto sent = std::async(std::launch::async, [&] { return server.complete(body).status; });
    while (sent.wait_for(milliseconds(0)) != std::future_status::ready) {
      const auto reply = raw_http::ask(server.port(), "GET", "/readyz");
      if (reply.body.find(part) != std::string::npos) seen = reply;
    }
    EXPECT_EQ(sent.get(), 400);
  }
  return seen;
}

TEST(TextTimeout, AWorkerWhoseTextDoesNotComeBackIsNotReady) {
  Generator::Options options = with_timeout(milliseconds(1));
  options.long_text_bytes = 1u << 30;
  testing::HarnessServer server({}, options, true, /*prompt_bytes_max=*/1 << 30);
  EXPECT_EQ(readyz_beside_a_slow_text(server, "a text thread is stuck").status, 503);
  EXPECT_EQ(raw_http::ask(server.port(), "GET", "/readyz").status, 200);
}

TEST(TextTimeout, AWorkerWhoseLongTextDoesNotComeBackIsReadyForShortOnes) {
  testing::HarnessServer server({}, with_timeout(milliseconds(1)), true, /*prompt_bytes_max=*/1 << 30);
  const auto seen = readyz_beside_a_slow_text(server, R"("long_texts":"stuck")");
  EXPECT_EQ(seen.status, 200);
  EXPECT_EQ(raw_http::ask(server.port(), "GET", "/readyz").body, R"({"status":"ready"})");
  const std::string metrics = raw_http::ask(server.port(), "GET", "/metrics").body;
  EXPECT_NE(metrics.find(R"(troupe_text_job_age_seconds{texts="long"} 0)"), std::string::npos) << metrics;
}

}  // namespace text_jobs_test
}  // namespace troupe
