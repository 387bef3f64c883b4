#pragma once

// The project's steady timer, on the concrete executor.

#include <boost/asio/basic_waitable_timer.hpp>
#include <chrono>

#include "common/core/time.h"
#include "common/net/task.h"

namespace troupe {

using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

}  // namespace troupe
