#include "sim/cli/parallel_runs.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace troupe::sim {

int64_t jobs_of(int64_t asked) {
  if (asked > 0) return asked;
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kJobsByItself);
}

Status parallel_runs(size_t count, int64_t jobs, const std::function<Status(size_t)>& work) {
  std::vector<Status> done(count, absl::OkStatus());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto take_turns = [&] {
    for (size_t i = next++; i < count && !failed; i = next++) {
      done[i] = work(i);
      if (!done[i].ok()) failed = true;
    }
  };
  {
    std::vector<std::jthread> others;
    const size_t at_once = std::min(count, static_cast<size_t>(std::max<int64_t>(jobs, 1)));
    for (size_t i = 1; i < at_once; ++i) others.emplace_back(take_turns);
    take_turns();
  }
  const auto first =
      std::find_if(done.begin(), done.end(), [](const Status& status) { return !status.ok(); });
  return first == done.end() ? absl::OkStatus() : *first;
}

}  // namespace troupe::sim
