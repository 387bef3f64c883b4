#pragma once

// Streams: what was asked for and has not happened yet. The default stream never has any of it.

#include <cstdint>
#include <functional>

#include "tests/kernels/emulated/host_api.h"

namespace troupe::emulated {

struct Work {
  const void* kernel;  // null: a copy
  std::function<void()> run;
  // A dependent launch's part that needs nothing of what is before it, which has not run; or null. Whoever
  // calls it calls run() on the same thread, with one other kernel's at most between.
  std::function<void()> begin;
};

// At once, or when somebody waits for the stream (set_late()), or into the graph that it captures.
void enqueue(cudaStream_t stream, Work work);
// All that is asked of every stream happens now.
void run_all();
bool any_captures();

}  // namespace troupe::emulated
