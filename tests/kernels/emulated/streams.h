#pragma once

// Streams: work that was enqueued and has not run yet. The default stream never has any.

#include <cstdint>
#include <functional>

#include "tests/kernels/emulated/host_api.h"

namespace troupe::emulated {

struct Work {
  const void* kernel;  // null: a copy
  std::function<void()> run;
  // The part of a dependent launch that needs nothing of the work before it, which has not run; or null. Its
  // caller calls run() on the same thread, with one other kernel's at most between.
  std::function<void()> begin;
  // Blocks of a thread-block cluster, as the launch's attribute says; 0: it has none, or this is a copy.
  dim3 cluster{0, 0, 0};
};

// Runs it at once, or when a thread waits for the stream (set_late()), or adds it to the captured graph.
void enqueue(cudaStream_t stream, Work work);
// Runs all work of every stream now.
void run_all();
bool any_captures();

}  // namespace troupe::emulated
