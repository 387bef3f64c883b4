#pragma once

// The threads for text in: what parses bodies, renders templates and encodes runs here, off the server's own
// thread, in order of arrival. Long bodies have a thread of their own, so that a short one never waits for
// one of megabytes. A job is bounded: by the processor time that it may take, by its request's deadline, and
// by its client, who may be gone before it begins or while it runs. One that does not come back all the same
// (in a library's code) is seen from outside by its age: its thread is stuck, and those that wait for the
// thread, or come to it, are sent away.

#include <atomic>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/api/error.h"
#include "common/core/time.h"
#include "common/core/work_limit.h"
#include "common/net/task.h"
#include "common/net/timer.h"

namespace troupe {

class TextJobs {
 public:
  static constexpr size_t kLongBytes = 64 * 1024;

  // `cpu_max`: of one job. `long_bytes`: from which on a text is long.
  explicit TextJobs(std::chrono::milliseconds cpu_max, size_t long_bytes = kLongBytes)
      : cpu_max_(cpu_max), long_bytes_(long_bytes) {}
  ~TextJobs();  // joins

  // Runs `job`, a function without arguments that returns ApiResult<Result>, and resumes with what it
  // returned, or with why it ended before. Where the coroutine is cancelled a job under way is still waited
  // for: it may read what the coroutine's frame owns. One that has not begun never will: it ends with its
  // deadline, its client, or as its thread is found stuck. `bytes`: of its text. All calls on the thread of
  // the coroutine's executor.
  template <typename Result, typename Job>
  Task<ApiResult<Result>> run(size_t bytes, Deadline deadline, Job job);

  enum class Kind : uint8_t { kShort, kLong };
  // Time that the thread's job under way has had so far; zero: none is. Thread-safe.
  Duration age(Kind kind) const { return thread(kind).age(); }
  // Its job has had more time than one that keeps its bounds takes. Thread-safe.
  bool is_stuck(Kind kind) const { return age(kind) > age_max(); }

 private:
  struct Thread {
    Duration age() const;
    asio::thread_pool pool{1};
    std::atomic<TimePoint> began = TimePoint::max();  // max: no job is under way
  };

  // A job on its way to its thread. The first of begin() and give_up() decides. The job's thread may be the
  // last to let go of it, when the executor is gone, so it holds the executor's objects until fail() or
  // complete() has resumed the coroutine and no longer.
  struct Turn {
    Turn(const Executor& executor, Duration cpu_max, Deadline until, Kind of)
        : limit(cpu_max, until), deadline(until), kind(of), timer(std::in_place, executor) {}
    virtual ~Turn() = default;
    // `self`: this. REQUIRES: it was given up.
    virtual void fail(std::shared_ptr<Turn> self, ApiError error) = 0;
    bool begin() { return decide(State::kBegun); }
    bool give_up() { return decide(State::kGivenUp); }
    bool waits() const { return state.load(std::memory_order_acquire) == State::kWaiting; }

    enum class State : uint8_t { kWaiting, kBegun, kGivenUp };
    bool decide(State to) {
      State waiting = State::kWaiting;
      return state.compare_exchange_strong(waiting, to, std::memory_order_acq_rel);
    }
    WorkLimit limit;
    const Deadline deadline;
    const Kind kind;
    std::optional<Timer> timer;  // on the executor's thread
    std::atomic<State> state = State::kWaiting;
  };
  template <typename Result, typename Handler, typename Job>
  struct TurnOf;

  const Thread& thread(Kind kind) const { return kind == Kind::kShort ? short_ : long_; }
  Thread& thread(Kind kind) { return kind == Kind::kShort ? short_ : long_; }
  Duration age_max() const { return 2 * cpu_max_; }
  // Returns why the job must not begin, or has ended without a result.
  ApiError ended(WorkLimit::End end) const;
  // Why a job need not wait for its thread any longer; nothing: it may.
  std::optional<ApiError> hopeless(Kind kind, Deadline deadline) const;
  // Looks after a job until it begins.
  void watch(const std::shared_ptr<Turn>& turn);
  static void abandon(const std::shared_ptr<Turn>& turn);
  template <typename Result, typename Job>
  ApiResult<Result> run_here(Kind kind, WorkLimit& limit, Job& job);

  const std::chrono::milliseconds cpu_max_;
  const size_t long_bytes_;
  Thread short_, long_;
};

// `handler` and `job` are touched by the executor's thread where the job was given up, else by the job's.
template <typename Result, typename Handler, typename Job>
struct TextJobs::TurnOf final : Turn {
  TurnOf(Handler h, Job j, Duration cpu_max, Deadline until, Kind of)
      : Turn(asio::get_associated_executor(h), cpu_max, until, of),
        work(asio::make_work_guard(h)),
        slot(asio::get_associated_cancellation_slot(h)),
        job(std::move(j)),
        handler(std::move(h)) {}

  // Resumes the coroutine, from its executor's queue.
  static void complete(std::shared_ptr<TurnOf> turn, ApiResult<Result> result) {
    const auto executor = turn->work.get_executor();
    asio::post(executor, [self = std::move(turn), result = std::move(result)]() mutable {
      self->slot.clear();
      self->timer.reset();
      self->work.reset();
      Handler resumes = std::move(self->handler);
      self.reset();
      std::move(resumes)(std::move(result));
    });
  }
  void fail(std::shared_ptr<Turn> self, ApiError error) override {
    complete(std::static_pointer_cast<TurnOf>(std::move(self)), std::move(error));
  }

  decltype(asio::make_work_guard(std::declval<Handler&>())) work;
  decltype(asio::get_associated_cancellation_slot(std::declval<Handler&>())) slot;
  Job job;
  Handler handler;
};

template <typename Result, typename Job>
ApiResult<Result> TextJobs::run_here(Kind kind, WorkLimit& limit, Job& job) {
  if (!limit.count(0).ok()) return ended(limit.end());
  std::atomic<TimePoint>& began = thread(kind).began;
  began.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
  ApiResult<Result> result = [&]() -> ApiResult<Result> {
    const WorkScope scope(limit);
    try {
      return job();
    } catch (const std::exception& e) {  // out of memory, at the edge of the standard library
      return ApiError::internal(std::string("text in: ") + e.what());
    }
  }();
  began.store(TimePoint::max(), std::memory_order_relaxed);
  return limit.end() == WorkLimit::End::kNone ? std::move(result) : ApiResult<Result>(ended(limit.end()));
}

template <typename Result, typename Job>
Task<ApiResult<Result>> TextJobs::run(size_t bytes, Deadline deadline, Job job) {
  auto initiate = [this, bytes, deadline](auto handler, Job given) {
    const Kind kind = bytes < long_bytes_ ? Kind::kShort : Kind::kLong;
    using Handler = decltype(handler);
    auto turn = std::make_shared<TurnOf<Result, Handler, Job>>(std::move(handler), std::move(given), cpu_max_,
                                                               deadline, kind);
    if (auto why = hopeless(kind, deadline)) {
      turn->give_up();
      return turn->fail(turn, *std::move(why));
    }
    if (turn->slot.is_connected()) {
      turn->slot.assign([weak = std::weak_ptr<Turn>(turn)](asio::cancellation_type) {
        if (const auto self = weak.lock()) abandon(self);
      });
    }
    watch(turn);
    asio::post(thread(kind).pool, [this, turn = std::move(turn)]() mutable {
      if (!turn->begin()) return;
      ApiResult<Result> result = run_here<Result>(turn->kind, turn->limit, turn->job);
      TurnOf<Result, Handler, Job>::complete(std::move(turn), std::move(result));
    });
  };
  return asio::async_initiate<const UseTask, void(ApiResult<Result>)>(std::move(initiate), use_task,
                                                                      std::move(job));
}

}  // namespace troupe
