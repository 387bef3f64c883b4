#include "common/core/work_limit.h"

#include <ctime>
#include <utility>

namespace troupe {

namespace {

thread_local WorkLimit* current_limit = nullptr;

Duration thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

Status WorkLimit::check() {
  if (end_ == End::kNone) {
    if (abandoned_.load(std::memory_order_relaxed)) {
      end_ = End::kAbandoned;
    } else if (!deadline_.is_never() && deadline_.expired(std::chrono::steady_clock::now())) {
      end_ = End::kDeadline;
    } else if (thread_cpu_time() >= cpu_end_) {
      end_ = End::kBudget;
    } else {
      left_ = kBytesPerCheck;
      return {};
    }
  }
  left_ = 0;
  return absl::CancelledError("the text's time is over");
}

WorkScope::WorkScope(WorkLimit& limit) : outer_(std::exchange(current_limit, &limit)) {
  limit.cpu_end_ = thread_cpu_time() + limit.cpu_max_;
}

WorkScope::~WorkScope() {
  current_limit = outer_;
}

Status count_work(size_t bytes) {
  return current_limit == nullptr ? Status() : current_limit->count(bytes);
}

}  // namespace troupe
