// replay, compare and capacity: the same run, once, for several policies, or at several rates.

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gateway/route/policy.h"
#include "sim/command_line.h"
#include "sim/commands.h"
#include "sim/html.h"
#include "sim/options.h"
#include "sim/report.h"

namespace troupe::sim {

namespace {

struct OutputFlags {
  std::string report, timing, html;
};

void describe_output(SettingsSchema& schema, OutputFlags& flags) {
  schema.add("report", &flags.report, "write the report here, as JSON; -: stdout");
  schema.add("html", &flags.html, "write a page with the table and plots here, for a browser");
  schema.add("timing", &flags.timing, "write how fast the simulation ran here, as JSON");
}

StatusOr<Result> run_once(const SourceFlags& source_flags, const SimulationOptions& options, double load,
                          const std::string& label) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<RequestSource> source,
                          open_source(source_flags, options.seed, load, options.profile.max_model_len));
  SimulationOptions run = options;
  run.progress = progress_line(label);
  // Of a trace that runs faster the warm-up is as much shorter: the same requests count at every load.
  if (!source_flags.trace.empty()) run.warmup_s /= load;
  if (source_flags.trace.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const PersonaWorkload workload, workload_of(source_flags));
    run.crowd_set = flash_set(workload);
    if (workload.flash) run.crowd_begin = workload.flash->begin;
  }
  auto result = simulate(*source, run);
  end_progress();
  if (!result.ok()) return result;
  std::fprintf(stderr, "%s: %lld requests in %.1f s, simulated_requests_per_s=%.0f decision_us=%.2f\n",
               label.c_str(), static_cast<long long>(result->simulated_requests), result->wall_s,
               result->wall_s > 0 ? static_cast<double>(result->simulated_requests) / result->wall_s : 0,
               result->decision_us);
  result->skipped_lines = say_skipped(label, *source, source_flags);
  say_notes(label, *source);
  say_too_long(label, *source, options.profile);
  if (result->faults_in_warmup > 0) {
    std::fprintf(stderr, "%s: %lld faults lie in the warm-up: they happen, but have no figures\n",
                 label.c_str(), static_cast<long long>(result->faults_in_warmup));
  }
  return result;
}

// What no run is needed to see.
Status check_flags(const SourceFlags& source, const OutputFlags& output, int argc, const char* const* argv) {
  TROUPE_RETURN_IF_ERROR(check_source(source, argc, argv));
  return check_outputs({output.report, output.html, output.timing});
}

PageFacts page_facts(std::string_view command, const SimulationOptions& options) {
  PageFacts facts;
  facts.title = absl::StrCat("troupe-sim ", to_absl(command));
  facts.warmup_s = options.warmup_s;
  facts.slo_ttft_ms = options.slo_ttft_ms;
  facts.slo_tpot_ms = options.slo_tpot_ms;
  facts.faults = options.faults;
  return facts;
}

Status write_outputs(const OutputFlags& flags, std::string_view report, std::span<const Result> results,
                     const PageFacts& facts) {
  if (!flags.report.empty()) TROUPE_RETURN_IF_ERROR(write_file(flags.report, report));
  if (!flags.html.empty()) TROUPE_RETURN_IF_ERROR(write_file(flags.html, html_page(results, facts)));
  if (!flags.timing.empty()) TROUPE_RETURN_IF_ERROR(write_file(flags.timing, timing_json(results)));
  return absl::OkStatus();
}

StatusOr<std::vector<std::string>> policies_of(const std::vector<std::string>& asked) {
  if (asked.size() == 1 && asked[0] == "all") return route::policy_names();
  for (const std::string& policy : asked) {
    if (const Status known = route::check_policy(policy); !known.ok()) return annotate(known, "--policies");
  }
  if (asked.empty()) return invalid_argument("--policies: name at least one, or all");
  return asked;
}

}  // namespace

int replay_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim replay";
  SourceFlags source;
  FleetFlags fleet;
  OutputFlags output;
  SettingsSchema schema(kProgram, "what would this fleet do with these requests?");
  describe_source(schema, source);
  describe_fleet(schema, fleet);
  describe_output(schema, output);
  describe_workload(schema, source);
  if (const auto code = read_source_flags(schema, source, kProgram, argc, argv)) return *code;
  if (const Status checked = check_flags(source, output, argc, argv); !checked.ok())
    return fail(kProgram, checked);
  const auto options = simulation_of(fleet);
  if (!options.ok()) return fail(kProgram, options.status());
  const auto result = run_once(source, *options, 1, fleet.route.policy);
  if (!result.ok()) return fail(kProgram, result.status());
  const std::span<const Result> one(&*result, 1);
  if (output.report != "-") std::fputs(table_text(one).c_str(), stdout);
  const Status written = write_outputs(output, report_json(*result), one, page_facts("replay", *options));
  return written.ok() ? kExitOk : fail(kProgram, written);
}

int compare_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim compare";
  SourceFlags source;
  FleetFlags fleet;
  OutputFlags output;
  std::vector<std::string> asked{"all"};
  SettingsSchema schema(kProgram, "what would each policy do with the same requests?");
  schema.add("policies", &asked, "names, or all").choices([] {
    std::vector<std::string> names = route::policy_names();
    names.push_back("all");
    return names;
  }());
  describe_source(schema, source);
  describe_fleet(schema, fleet);
  describe_output(schema, output);
  describe_workload(schema, source);
  if (const auto code = read_source_flags(schema, source, kProgram, argc, argv)) return *code;
  if (const Status checked = check_flags(source, output, argc, argv); !checked.ok())
    return fail(kProgram, checked);
  const auto policies = policies_of(asked);
  if (!policies.ok()) return fail(kProgram, policies.status());
  auto options = simulation_of(fleet);
  if (!options.ok()) return fail(kProgram, options.status());
  std::vector<Result> results;
  for (const std::string& policy : *policies) {
    options->router.policy = policy;
    auto result = run_once(source, *options, 1, policy);
    if (!result.ok()) return fail(kProgram, result.status());
    results.push_back(*std::move(result));
  }
  if (output.report != "-") std::fputs(table_text(results).c_str(), stdout);
  const Status written =
      write_outputs(output, comparison_json(results), results, page_facts("compare", *options));
  return written.ok() ? kExitOk : fail(kProgram, written);
}

namespace {

struct CapacityFlags {
  double goodput = 0.99;
  int64_t steps = 7;
};

// One bad request of fewer than these is more than 99 % allow.
constexpr int64_t kRequestsMin = 100;

struct Probe {
  LoadStep step;
  Result result;
};

StatusOr<Probe> probe_at(double load, const SourceFlags& source, const SimulationOptions& options,
                         double goodput) {
  Probe probe;
  TROUPE_ASSIGN_OR_RETURN(probe.result, run_once(source, options, load, absl::StrFormat("load %.4g", load)));
  const Result& r = probe.result;
  probe.step.load = load;
  probe.step.rate = r.duration_s > 0 ? static_cast<double>(r.requests) / r.duration_s : 0;
  probe.step.goodput = r.goodput;
  probe.step.ttft_p99_ms = r.ttft_ms.p99;
  probe.step.holds = r.goodput >= goodput;
  return probe;
}

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

// Doubles or halves the load until one good and one bad are known, then halves the gap between them
// (geometrically). Every load is told to `out` and in `steps`.
StatusOr<Probe> sustainable(const SourceFlags& source, const SimulationOptions& options,
                            const CapacityFlags& flags, std::FILE* out, std::vector<LoadStep>& steps) {
  constexpr int kDoublingsMax = 20;
  Probe good;
  double load = 1, low = 0, high = 0;
  for (int step = 0, bisections = 0; bisections < flags.steps && step < kDoublingsMax + flags.steps; ++step) {
    if (low > 0 && high > 0) ++bisections;
    TROUPE_ASSIGN_OR_RETURN(Probe probe, probe_at(load, source, options, flags.goodput));
    if (probe.result.requests < kRequestsMin) {
      if (high > 0 && low == 0) break;
      return too_few(probe.result.requests);
    }
    say_step(out, probe.step);
    steps.push_back(probe.step);
    if (probe.step.holds) {
      low = load;
      good = std::move(probe);
    } else {
      high = load;
    }
    // In a span shorter than the limit nobody can wait for longer; of less than a second it is one burst.
    const double shortest_s = std::min(options.slo_ttft_ms / 1e3, 1.0);
    if (high == 0 && good.result.duration_s < shortest_s) return nothing_fails(good);
    load = low > 0 && high > 0 ? std::sqrt(low * high) : high == 0 ? load * 2 : load / 2;
  }
  if (low == 0)
    return absl::FailedPreconditionError("no load holds, however small: the limits cannot be met at all");
  if (high == 0) return nothing_fails(good);
  return good;
}

}  // namespace

int capacity_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim capacity";
  SourceFlags source;
  FleetFlags fleet;
  OutputFlags output;
  CapacityFlags flags;
  SettingsSchema schema(kProgram, "the highest rate at which requests are still answered inside the limits");
  schema.add("goodput", &flags.goodput, "share of requests that must be inside both limits").range(0.01, 1);
  schema.add("steps", &flags.steps, "bisections, after a good and a bad rate are known").range(1, 30);
  describe_source(schema, source);
  describe_fleet(schema, fleet);
  describe_output(schema, output);
  describe_workload(schema, source);
  if (const auto code = read_source_flags(schema, source, kProgram, argc, argv)) return *code;
  if (const Status checked = check_flags(source, output, argc, argv); !checked.ok())
    return fail(kProgram, checked);
  const auto options = simulation_of(fleet);
  if (!options.ok()) return fail(kProgram, options.status());
  PageFacts facts = page_facts("capacity", *options);
  std::FILE* const told = output.report == "-" ? stderr : stdout;
  const auto best = sustainable(source, *options, flags, told, facts.steps);
  if (!best.ok()) return fail(kProgram, best.status());
  std::fprintf(told, "sustainable: %.1f requests/s (load %.4g)\n", best->step.rate, best->step.load);
  const std::span<const Result> one(&best->result, 1);
  if (output.report != "-") std::fputs(table_text(one).c_str(), stdout);
  const CapacityAnswer answer{best->step.rate, best->step.load, facts.steps};
  const Status written = write_outputs(output, capacity_json(answer, best->result), one, facts);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
