#pragma once

// A search in which each run's result decides what to run next. On spare cores the runs that may come next
// are made before that is known.

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sim/cli/parallel_runs.h"
#include "sim/fleet/result.h"

namespace troupe::sim {

struct Probe {
  LoadStep step;
  Result result;
};

// The run to make now, and those that may follow: the nearest of these, each once. A Search has `double at`,
// what to run; is_over(); and after(bool holds), the search once that has run.
template <typename Search>
std::vector<double> runs_ahead(const Search& search, size_t count) {
  std::vector<double> runs;
  std::deque<Search> level{search};
  while (!level.empty() && runs.size() < count) {
    const Search now = level.front();
    level.pop_front();
    if (now.is_over()) continue;
    runs.push_back(now.at);
    level.push_back(now.after(true));
    level.push_back(now.after(false));
  }
  return runs;
}

// Gives the probes in the order of the search, and runs up to `jobs` at once.
template <typename Search>
class Prober {
 public:
  using Run = std::function<StatusOr<Probe>(double at)>;  // thread-safe
  Prober(int64_t jobs, Run run) : jobs_(jobs_of(jobs)), run_(std::move(run)) {}

  StatusOr<Probe> probe(const Search& search) {
    if (!known_.contains(search.at)) TROUPE_RETURN_IF_ERROR(run_ahead(search));
    return std::move(known_.at(search.at));
  }

 private:
  Status run_ahead(const Search& search) {
    const std::vector<double> runs = runs_ahead(search, static_cast<size_t>(jobs_));
    std::vector<std::optional<Probe>> probes(runs.size());
    TROUPE_RETURN_IF_ERROR(parallel_runs(runs.size(), jobs_, [&](size_t i) -> Status {
      StatusOr<Probe> probe = run_(runs[i]);
      if (probe.ok()) probes[i] = *std::move(probe);
      // The error of a speculative run counts only once the search asks for it.
      return i == 0 ? probe.status() : absl::OkStatus();
    }));
    known_.clear();  // the branch not taken
    for (size_t i = 0; i < runs.size(); ++i) {
      if (probes[i]) known_[runs[i]] = *std::move(probes[i]);
    }
    return absl::OkStatus();
  }

  const int64_t jobs_;
  const Run run_;
  std::map<double, Probe> known_;  // by what was run; a search reaches each once, by the same sums
};

}  // namespace troupe::sim
