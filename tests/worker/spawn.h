#pragma once

// A coroutine's result as a std::future. (asio::use_future does the same, but under ASan g++ 12 reports its
// internals as uninitialised.)

#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <future>
#include <memory>
#include <utility>

#include "common/net/task.h"

namespace troupe::test_spawn {

template <typename T>
std::future<T> spawn(const Executor& executor, Task<T> task) {
  auto promise = std::make_shared<std::promise<T>>();
  auto done = [promise](std::exception_ptr error, T result) {
    if (error) {
      promise->set_exception(error);
    } else {
      promise->set_value(std::move(result));
    }
  };
  asio::co_spawn(executor, std::move(task), std::move(done));
  return promise->get_future();
}

}  // namespace troupe::test_spawn
