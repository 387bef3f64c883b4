#include "gateway/proxy/hops.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe {

ApiResult<int> hops_of(const HttpRequest& request) {
  const std::string_view text = request.header(kHopsHeader);
  if (text.empty()) return 0;
  int hops = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hops);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument || text.front() == '-')
    return ApiError::bad_field(kHopsHeader, "x-troupe-hops must be a number; gateways send it, not clients");
  if (error == std::errc() && hops < kHopsMax) return hops;
  ApiError loop = ApiError::unavailable(absl::StrCat("this request has passed ", to_absl(text),
                                                     " gateways: one of them has another, or itself, "
                                                     "among its workers"));
  loop.http_status = 508;
  loop.code = "loop_detected";
  return loop;
}

}  // namespace troupe
