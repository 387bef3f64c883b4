#pragma once

// Coroutine types on a concrete executor: a type-erased one costs an allocation and a virtual call a use.
//
// Coding rules. g++ 12.2 miscompiles the first three silently (double free, use after free); the others come
// from ASan and TSan runs of tests/common/net. tests/tidy enforces those marked T.
//   T no braced or aggregate temporary inside a co_await expression: `F({1})`, `F({})`: name it first;
//   T no co_await inside ?: or inside a braced initialiser: name its result first;
//   T no capturing lambda coroutine: a coroutine is a named function, its state goes in as parameters. (A
//     capturing lambda that is no coroutine itself and returns one, `[x](Exchange& e) { return f(e, x); }`,
//     is fine: x is copied into f's frame.)
//   T nothing is `detached`: every coroutine belongs to a TaskGroup;
//   * no co_await in a catch block (the language forbids it): keep the exception, act after the block;
//   * a reference parameter must outlive the coroutine: fine if the caller awaits at once, a bug if the
//     coroutine is spawned; a spawned coroutine takes values and shared_ptrs;
//   * no string_view of a temporary across a suspension; views into a Channel's input end at its next more();
//   * no over-aligned locals in a coroutine frame (XXH3_state_t): g++ 12 aligns frames to 16 bytes;
//   * after a cancellation every further co_await throws operation_aborted: clean up in destructors and with
//     calls that do not wait;
//   * a callback that resumes a coroutine does so as its last act: everything may be gone afterwards.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace troupe {

namespace asio = boost::asio;
using Executor = asio::io_context::executor_type;
template <typename T>
using Task = asio::awaitable<T, Executor>;
using UseTask = asio::use_awaitable_t<Executor>;
inline constexpr UseTask use_task{};

}  // namespace troupe
