#pragma once

// absl::Status is the one error type inside Troupe; ApiError (error.h) is the one sent over HTTP. Exceptions
// and error_codes are translated to absl::Status once, at the edge where they arise.

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe {

using absl::Status;
using absl::StatusOr;

// Debian's absl::string_view is a type of its own.
inline absl::string_view to_absl(std::string_view s) {
  return {s.data(), s.size()};
}
inline std::string_view to_std(absl::string_view s) {
  return {s.data(), s.size()};
}

inline Status invalid_argument(std::string_view message) {
  return absl::InvalidArgumentError(to_absl(message));
}

// Prepends `where: ` to the status's message ("model.safetensors: tensor 'x': …").
Status annotate(const Status& status, std::string_view where);

}  // namespace troupe

#define TROUPE_CONCAT_INNER(a, b) a##b
#define TROUPE_CONCAT(a, b) TROUPE_CONCAT_INNER(a, b)

#define TROUPE_RETURN_IF_ERROR(expr)                        \
  do {                                                      \
    if (::troupe::Status status_ = (expr); !status_.ok()) { \
      return status_;                                       \
    }                                                       \
  } while (false)

#define TROUPE_ASSIGN_OR_RETURN(lhs, expr) \
  TROUPE_ASSIGN_OR_RETURN_IMPL(TROUPE_CONCAT(status_or_, __LINE__), lhs, expr)
#define TROUPE_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()
