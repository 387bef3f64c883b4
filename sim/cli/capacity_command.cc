// capacity: the same run at several rates. Each result decides whether the next rate is higher or lower; on
// spare cores the loads that may come next run before that is known.

#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/options.h"
#include "sim/cli/parallel_runs.h"
#include "sim/cli/run_once.h"
#include "sim/report/report.h"

namespace troupe::sim {

namespace {

struct CapacityFlags {
  double goodput = 0.99;
  int64_t steps = 7, jobs = 0;
};

// With fewer requests than these, one bad one is more than 99 % allow.
constexpr int64_t kRequestsMin = 100;
constexpr int64_t kDoublingsMax = 20;

// Doubles or halves the load until a good and a bad one are known, then bisects the gap between them
// (geometrically).
struct Search {
  double load = 1, low = 0, high = 0;  // 0: unknown
  int64_t probes = 0, bisections = 0;

  bool is_over(int64_t steps) const { return bisections >= steps || probes >= kDoublingsMax + steps; }
  Search after(bool holds) const {
    Search next = *this;
    next.bisections += low > 0 && high > 0;
    next.probes += 1;
    (holds ? next.low : next.high) = load;
    const bool both = next.low > 0 && next.high > 0;
    next.load = both ? std::sqrt(next.low * next.high) : holds ? load * 2 : load / 2;
    return next;
  }
};

// The load to run now, and those that may follow: the nearest of these, each load once.
std::vector<double> loads_ahead(const Search& search, int64_t steps, size_t count) {
  std::vector<double> loads;
  std::deque<Search> level{search};
  while (!level.empty() && loads.size() < count) {
    const Search at = level.front();
    level.pop_front();
    if (at.is_over(steps)) continue;
    loads.push_back(at.load);
    level.push_back(at.after(true));
    level.push_back(at.after(false));
  }
  return loads;
}

struct Probe {
  LoadStep step;
  Result result;
};

// Runs probes in the order of the search, up to `jobs` at once.
class Prober {
 public:
  Prober(const SourceFlags& source, const SimulationOptions& options, const CapacityFlags& flags)
      : source_(source), options_(options), flags_(flags), jobs_(jobs_of(flags.jobs)) {}

  StatusOr<Probe> probe(const Search& search) {
    if (!known_.contains(search.load)) TROUPE_RETURN_IF_ERROR(run_ahead(search));
    return std::move(known_.at(search.load));
  }

 private:
  Status run_ahead(const Search& search) {
    const std::vector<double> loads = loads_ahead(search, flags_.steps, static_cast<size_t>(jobs_));
    std::vector<std::optional<Probe>> probes(loads.size());
    TROUPE_RETURN_IF_ERROR(parallel_runs(loads.size(), jobs_, [&](size_t i) -> Status {
      StatusOr<Probe> probe = run(loads[i]);
      if (probe.ok()) probes[i] = *std::move(probe);
      // The error of a speculative run counts only once the search asks for it.
      return i == 0 ? probe.status() : absl::OkStatus();
    }));
    known_.clear();  // the branch not taken
    for (size_t i = 0; i < loads.size(); ++i) {
      if (probes[i]) known_[loads[i]] = *std::move(probes[i]);
    }
    return absl::OkStatus();
  }
  StatusOr<Probe> run(double load) {
    Probe probe;
    TROUPE_ASSIGN_OR_RETURN(probe.result,
                            run_once(source_, options_, load, absl::StrFormat("load %.4g", load), progress_));
    const Result& r = probe.result;
    probe.step.load = load;
    probe.step.rate = r.duration_s > 0 ? static_cast<double>(r.requests) / r.duration_s : 0;
    probe.step.goodput = r.goodput;
    probe.step.ttft_p99_ms = r.ttft_ms.p99;
    probe.step.holds = r.goodput >= flags_.goodput;
    return probe;
  }

  const SourceFlags& source_;
  const SimulationOptions& options_;
  const CapacityFlags& flags_;
  const int64_t jobs_;
  ProgressLine progress_;
  std::map<double, Probe> known_;  // by load; a search reaches each load once, by the same sums
};

void say_step(std::FILE* out, const LoadStep& step) {
  std::fprintf(out, "load %-8.4g %8.1f requests/s  goodput %.4f  ttft p99 %.0f ms  %s\n", step.load,
               step.rate, step.goodput, step.ttft_p99_ms, step.holds ? "holds" : "does not hold");
  std::fflush(out);
}

Status too_few(int64_t requests) {
  return invalid_argument(
      absl::StrCat("only ", requests, " requests arrive after the warm-up, which says little of a rate; ",
                   kRequestsMin, " are the least: a shorter --warmup-s, a longer trace or --duration-s"));
}

Status nothing_fails(const Probe& last) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "no load up to %.4g fails: all %d requests then arrive within %.3g s, less than a queue needs to show; "
      "what the fleet can do needs a longer trace or --duration-s, or fewer --nodes",
      last.step.load, last.result.requests, last.result.duration_s));
}

// Reports every load of the search to `out` and in `steps`.
StatusOr<Probe> sustainable(Prober& prober, const SimulationOptions& options, const CapacityFlags& flags,
                            std::FILE* out, std::vector<LoadStep>& steps) {
  Probe good;
  Search search;
  while (!search.is_over(flags.steps)) {
    TROUPE_ASSIGN_OR_RETURN(Probe probe, prober.probe(search));
    if (probe.result.requests < kRequestsMin) {
      if (search.high > 0 && search.low == 0) break;
      return too_few(probe.result.requests);
    }
    say_step(out, probe.step);
    steps.push_back(probe.step);
    search = search.after(probe.step.holds);
    if (probe.step.holds) good = std::move(probe);
    // In a span shorter than the limit no wait can exceed it; less than a second is one burst.
    const double shortest_s = std::min(options.slo_ttft_ms / 1e3, 1.0);
    if (search.high == 0 && good.result.duration_s < shortest_s) return nothing_fails(good);
  }
  if (search.low == 0)
    return absl::FailedPreconditionError("no load holds, however small: the limits cannot be met at all");
  if (search.high == 0) return nothing_fails(good);
  return good;
}

}  // namespace

int capacity_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim capacity";
  RunFlags run;
  CapacityFlags flags;
  SettingsSchema schema(kProgram, "the highest rate at which requests are still answered inside the limits");
  schema.add("goodput", &flags.goodput, "share of requests that must be inside both limits").range(0.01, 1);
  schema.add("steps", &flags.steps, "bisections, after a good and a bad rate are known").range(1, 30);
  describe_jobs(schema, flags.jobs, "rates (the one asked for, and those that may be asked for next)");
  if (const auto code = read_run_flags(schema, run, kProgram, argc, argv)) return *code;
  if (const Status checked = check_no_requests(run.output); !checked.ok()) return fail(kProgram, checked);
  PageFacts facts = page_facts("capacity", run.options);
  std::FILE* const told = run.output.report == "-" ? stderr : stdout;
  Prober prober(run.source, run.options, flags);
  const auto best = sustainable(prober, run.options, flags, told, facts.steps);
  if (!best.ok()) return fail(kProgram, best.status());
  std::fprintf(told, "sustainable: %.1f requests/s (load %.4g)\n", best->step.rate, best->step.load);
  const std::span<const Result> one(&best->result, 1);
  if (run.output.report != "-") std::fputs(table_text(one).c_str(), stdout);
  const CapacityAnswer answer{best->step.rate, best->step.load, facts.steps};
  const Status written = write_outputs(run.output, capacity_json(answer, best->result), one, facts);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
