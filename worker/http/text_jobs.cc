#include "worker/http/text_jobs.h"

#include <algorithm>

#include "worker/engine/engine_errors.h"

namespace troupe {

TextJobs::~TextJobs() {
  short_.pool.join();
  long_.pool.join();
}

Duration TextJobs::age() const {
  const TimePoint began =
      std::min(short_.began.load(std::memory_order_relaxed), long_.began.load(std::memory_order_relaxed));
  return began == TimePoint::max() ? Duration::zero() : std::chrono::steady_clock::now() - began;
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

}  // namespace troupe
