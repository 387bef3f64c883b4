#pragma once

// The threads for text in: what parses bodies, renders templates and encodes runs here, off the server's own
// thread, in order of arrival. Long bodies have a thread of their own, so that a short one never waits for
// one of megabytes. A job is bounded: by the processor time that it may take, by its request's deadline, and
// by its client, who may be gone before it begins or while it runs. One that does not come back all the same
// (in a library's code) is seen from outside by its age.

#include <atomic>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/api/error.h"
#include "common/core/time.h"
#include "common/core/work_limit.h"
#include "common/net/task.h"

namespace troupe {

class TextJobs {
 public:
  static constexpr size_t kLongBytes = 64 * 1024;

  // `cpu_max`: of one job.
  explicit TextJobs(std::chrono::milliseconds cpu_max) : cpu_max_(cpu_max) {}
  ~TextJobs();  // joins

  // Runs `job`, a function without arguments that returns ApiResult<Result>, and resumes with what it
  // returned, or with why it ended before. Where the coroutine is cancelled it still waits: the job may read
  // what its frame owns. `bytes`: of its text.
  template <typename Result, typename Job>
  Task<ApiResult<Result>> run(size_t bytes, Deadline deadline, Job job);

  // Time that the oldest job under way has had so far; zero: none is. Thread-safe.
  Duration age() const;
  // An age beyond this is no job's that keeps its bounds.
  Duration age_max() const { return 2 * cpu_max_; }

 private:
  struct Thread {
    asio::thread_pool pool{1};
    std::atomic<TimePoint> began = TimePoint::max();  // max: no job is under way
  };
  // Returns why the job must not begin, or has ended without a result.
  ApiError ended(WorkLimit::End end) const;
  template <typename Result, typename Job>
  ApiResult<Result> run_here(Thread& thread, WorkLimit& limit, Job& job);

  const std::chrono::milliseconds cpu_max_;
  Thread short_, long_;
};

template <typename Result, typename Job>
ApiResult<Result> TextJobs::run_here(Thread& thread, WorkLimit& limit, Job& job) {
  if (!limit.count(0).ok()) return ended(limit.end());
  thread.began.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
  ApiResult<Result> result = [&]() -> ApiResult<Result> {
    const WorkScope scope(limit);
    try {
      return job();
    } catch (const std::exception& e) {  // out of memory, at the edge of the standard library
      return ApiError::internal(std::string("text in: ") + e.what());
    }
  }();
  thread.began.store(TimePoint::max(), std::memory_order_relaxed);
  return limit.end() == WorkLimit::End::kNone ? std::move(result) : ApiResult<Result>(ended(limit.end()));
}

template <typename Result, typename Job>
Task<ApiResult<Result>> TextJobs::run(size_t bytes, Deadline deadline, Job job) {
  Thread& thread = bytes < kLongBytes ? short_ : long_;
  auto limit = std::make_shared<WorkLimit>(cpu_max_, deadline);
  auto initiate = [this, &thread, limit](auto handler, Job given) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) slot.assign([limit](asio::cancellation_type) { limit->abandon(); });
    auto work = asio::make_work_guard(handler);
    asio::post(thread.pool, [this, &thread, limit, slot, handler = std::move(handler), work = std::move(work),
                             own = std::move(given)]() mutable {
      auto executor = work.get_executor();
      asio::post(executor, [slot, handler = std::move(handler), work = std::move(work),
                            result = run_here<Result>(thread, *limit, own)]() mutable {
        slot.clear();
        std::move(handler)(std::move(result));
      });
    });
  };
  return asio::async_initiate<const UseTask, void(ApiResult<Result>)>(std::move(initiate), use_task,
                                                                      std::move(job));
}

}  // namespace troupe
