// capacity: the same run at several rates. Each result decides whether the next rate is higher or lower; on
// spare cores the loads that may come next run before that is known.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/options.h"
#include "sim/cli/run_once.h"
#include "sim/cli/searched_runs.h"
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
struct LoadSearch {
  int64_t steps = 0;                 // bisections
  double at = 1, low = 0, high = 0;  // loads; low holds, high does not; 0: unknown
  int64_t probes = 0, bisections = 0;

  bool is_over() const { return bisections >= steps || probes >= kDoublingsMax + steps; }
  LoadSearch after(bool holds) const {
    LoadSearch next = *this;
    next.bisections += low > 0 && high > 0;
    next.probes += 1;
    (holds ? next.low : next.high) = at;
    const bool both = next.low > 0 && next.high > 0;
    next.at = both ? std::sqrt(next.low * next.high) : holds ? at * 2 : at / 2;
    return next;
  }
};

StatusOr<Probe> run_at(const RunFlags& run, double load, double goodput, ProgressLine& progress) {
  Probe probe;
  TROUPE_ASSIGN_OR_RETURN(
      probe.result, run_once(run.source, run.options, load, absl::StrFormat("load %.4g", load), progress));
  probe.step = load_step(probe.result, goodput);
  probe.step.load = load;
  return probe;
}

void print_step(std::FILE* out, const LoadStep& step) {
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
StatusOr<Probe> sustainable(Prober<LoadSearch>& prober, const SimulationOptions& options,
                            const CapacityFlags& flags, std::FILE* out, std::vector<LoadStep>& steps) {
  Probe good;
  LoadSearch search{.steps = flags.steps};
  while (!search.is_over()) {
    TROUPE_ASSIGN_OR_RETURN(Probe probe, prober.probe(search));
    if (probe.result.requests < kRequestsMin) {
      if (search.high > 0 && search.low == 0) break;
      return too_few(probe.result.requests);
    }
    print_step(out, probe.step);
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

// "4 nodes of l40s bear 55.8 requests/s, 4.46 times …"
std::string answer_of(const Probe& best, const std::vector<LoadStep>& steps, const SourceFlags& source) {
  const Result& r = best.result;
  std::string out = absl::StrFormat(
      "%d %s of %s %s %.1f requests/s, %.3g times what %s: %.2f %% of them are answered inside both "
      "limits.",
      r.nodes, r.nodes == 1 ? "node" : "nodes", r.profile, r.nodes == 1 ? "bears" : "bear", best.step.rate,
      best.step.load, source.trace.empty() ? "was asked for" : "the trace brings", best.step.goodput * 100);
  const LoadStep* next = nullptr;  // the lowest load that was too much
  for (const LoadStep& step : steps) {
    if (!step.holds && (next == nullptr || step.load < next->load)) next = &step;
  }
  if (next != nullptr) {
    absl::StrAppend(&out,
                    absl::StrFormat(" At %.1f requests/s it is %.2f %%.", next->rate, next->goodput * 100));
  }
  return out;
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
  PageFacts facts = page_facts("capacity", run.source, run.options);
  facts.command = command_line(argc, argv);
  std::FILE* const text_out = run.output.report == "-" ? stderr : stdout;
  ProgressLine progress;
  Prober<LoadSearch> prober(flags.jobs,
                            [&](double load) { return run_at(run, load, flags.goodput, progress); });
  const auto best = sustainable(prober, run.options, flags, text_out, facts.steps);
  if (!best.ok()) return fail(kProgram, best.status());
  facts.answer = answer_of(*best, facts.steps, run.source);
  std::fprintf(text_out, "sustainable: %.1f requests/s (load %.4g)\n", best->step.rate, best->step.load);
  const std::span<const Result> one(&best->result, 1);
  if (run.output.report != "-") std::fputs(table_text(one).c_str(), stdout);
  const CapacityAnswer answer{best->step.rate, best->step.load, facts.steps};
  const Status written = write_outputs(run.output, capacity_json(answer, best->result), one, facts);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
