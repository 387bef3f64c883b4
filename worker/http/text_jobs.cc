#include "worker/http/text_jobs.h"

#include <algorithm>

#include "worker/engine/engine_errors.h"

namespace troupe {

namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

TextJobs::~TextJobs() {
  short_.pool.join();
  long_.pool.join();
}

Duration TextJobs::Thread::age() const {
  const TimePoint at = began.load(std::memory_order_relaxed);
  return at == TimePoint::max() ? Duration::zero() : now() - at;
}

ApiError TextJobs::ended(WorkLimit::End end) const {
  if (end == WorkLimit::End::kAbandoned) return ApiError::unavailable("the client is gone");
  if (end == WorkLimit::End::kDeadline) return deadline_error();
  ApiError error = ApiError::bad_field(
      "", "the text takes more than the " + std::to_string(cpu_max_.count()) +
              " ms of processor time that its template and its tokens may (limits.text_timeout_ms)");
  error.code = "text_timeout";
  return error;
}

std::optional<ApiError> TextJobs::hopeless(Kind kind, Deadline deadline) const {
  if (!deadline.is_never() && deadline.expired(now())) return ended(WorkLimit::End::kDeadline);
  if (!is_stuck(kind)) return std::nullopt;
  ApiError error =
      ApiError::unavailable(kind == Kind::kShort ? "the thread for texts does not come back"
                                                 : "the thread for long texts does not come back");
  error.retry_after_s = 1;  // it may be back at any time
  return error;
}

// The job under way may be the next to be found stuck, so it looks again.
void TextJobs::watch(const std::shared_ptr<Turn>& turn) {
  turn->timer->expires_at(std::min(turn->deadline.at, now() + age_max()));
  turn->timer->async_wait([this, weak = std::weak_ptr(turn)](const boost::system::error_code& error) {
    const auto waiting = weak.lock();
    if (error || !waiting || !waiting->waits()) return;  // where none waits `this` may be gone
    auto why = hopeless(waiting->kind, waiting->deadline);
    if (!why) return watch(waiting);
    if (waiting->give_up()) waiting->fail(waiting, *std::move(why));
  });
}

void TextJobs::abandon(const std::shared_ptr<Turn>& turn) {
  if (turn->give_up()) {
    turn->fail(turn, ApiError::unavailable("the client is gone"));
  } else {
    turn->limit.abandon();
  }
}

}  // namespace troupe
