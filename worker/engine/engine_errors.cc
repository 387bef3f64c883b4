#include "worker/engine/engine_errors.h"

namespace troupe {

ApiError submit_error(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ApiError::bad_field("prompt", to_std(status.message()));
    case absl::StatusCode::kUnimplemented:
      return ApiError::unsupported("logprobs", to_std(status.message()));
    case absl::StatusCode::kFailedPrecondition: {
      ApiError error = ApiError::bad_field("", to_std(status.message()));
      error.code = "no_structured_answer";
      return error;
    }
    case absl::StatusCode::kResourceExhausted:
      return ApiError::overloaded(to_std(status.message()), /*retry_after_s=*/1);
    default:
      return ApiError::unavailable(to_std(status.message()));
  }
}

ApiError step_error(const Status& status) {
  if (status.code() == absl::StatusCode::kCancelled || status.code() == absl::StatusCode::kUnavailable) {
    return ApiError::unavailable("the worker is shutting down");
  }
  if (status.code() == absl::StatusCode::kDataLoss) {
    ApiError error = ApiError::internal(to_std(status.message()));
    error.code = "numerical_error";
    return error;
  }
  // Only the compute thread can detect these: no room beside the pinned blocks, or for a pin; a grammar whose
  // tokens are all banned.
  const bool refused = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kFailedPrecondition ||
                       status.code() == absl::StatusCode::kResourceExhausted;
  return refused ? submit_error(status) : ApiError::internal(to_std(status.message()));
}

ApiError deadline_error() {
  return ApiError::deadline("the request's time was up before its answer was complete");
}

}  // namespace troupe
