#include "worker/sim_device/fault_exchange.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

#include "common/api/sse.h"

namespace troupe {

void FaultExchange::break_off() {
  inner_.cut();
  throw boost::system::system_error(asio::error::connection_aborted);
}

// An error answer in one piece passes: only real answers are broken off.
Task<void> FaultExchange::respond(int status, const HeaderList& headers, std::string body) {
  if (status == 200) break_off();
  co_await inner_.respond(status, headers, std::move(body));
}

// Heartbeats are not counted.
Task<void> FaultExchange::write(std::string_view bytes) {
  if (bytes != kSseHeartbeat && (--writes_left_ <= 0 || bytes.ends_with(kSseDone))) break_off();
  co_await inner_.write(bytes);
}

Task<void> FaultExchange::finish() {
  break_off();
  co_return;
}

}  // namespace troupe
