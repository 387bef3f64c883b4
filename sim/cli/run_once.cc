#include "sim/cli/run_once.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "sim/cli/parallel_runs.h"
#include "sim/cli/requests_file.h"
#include "sim/report/output_file.h"
#include "sim/report/report.h"

namespace troupe::sim {

namespace {

Status check_flags(const SourceFlags& source, const OutputFlags& output, int argc, const char* const* argv) {
  TROUPE_RETURN_IF_ERROR(check_source(source, argc, argv));
  return check_outputs({output.report, output.html, output.timing});
}

}  // namespace

void describe_output(SettingsSchema& schema, OutputFlags& flags) {
  schema.add("report", &flags.report, "write the report here, as JSON; -: stdout").path();
  schema.add("html", &flags.html, "write a page with the table and plots here, for a browser").path();
  schema.add("timing", &flags.timing, "write how fast the simulation ran here, as JSON").path();
  describe_requests(schema, flags.requests);
}

std::optional<int> read_run_flags(SettingsSchema& schema, RunFlags& flags, std::string_view program, int argc,
                                  const char* const* argv) {
  describe_source(schema, flags.source);
  describe_nodes(schema, flags.fleet);
  describe_fleet(schema, flags.fleet);
  describe_output(schema, flags.output);
  describe_workload(schema, flags.source);
  if (const auto code = read_source_flags(schema, flags.source, program, argc, argv)) return code;
  if (const Status checked = check_flags(flags.source, flags.output, argc, argv); !checked.ok())
    return fail(program, checked);
  auto options = simulation_of(flags.fleet);
  if (!options.ok()) return fail(program, options.status());
  flags.options = *std::move(options);
  return std::nullopt;
}

Status check_no_requests(const OutputFlags& flags) {
  if (flags.requests.empty()) return absl::OkStatus();
  return invalid_argument("--requests: only replay and drive, which are one run, write it");
}

void describe_jobs(SettingsSchema& schema, int64_t& jobs, std::string_view of_what) {
  schema
      .add("jobs", &jobs,
           absl::StrCat(
               to_absl(of_what),
               " simulated at once, each in memory of its own; 0: as many as there are cores, at most ",
               kJobsByItself))
      .range(0, 1024);
}

StatusOr<Result> run_once(const SourceFlags& source_flags, const SimulationOptions& options, double load,
                          const std::string& label, ProgressLine& progress) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<RequestSource> source,
                          open_source(source_flags, options.seed, load, options.profile.max_model_len));
  SimulationOptions run = options;
  run.progress = progress.run(label);
  // A faster trace has a shorter warm-up: the same requests count at every load.
  if (!source_flags.trace.empty()) run.warmup_s /= load;
  if (source_flags.trace.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const PersonaWorkload workload, workload_of(source_flags));
    run.crowd_set = flash_set(workload);
    if (workload.flash) run.crowd_begin = workload.flash->begin;
  }
  auto result = simulate(*source, run);
  progress.ended(label);
  if (!result.ok()) return result;
  std::fprintf(stderr, "%s: %lld requests in %.1f s, simulated_requests_per_s=%.0f decision_us=%.2f\n",
               label.c_str(), static_cast<long long>(result->simulated_requests), result->wall_s,
               result->wall_s > 0 ? static_cast<double>(result->simulated_requests) / result->wall_s : 0,
               result->decision_us);
  result->skipped_lines = print_skipped(label, *source, source_flags);
  print_notes(label, *source);
  print_too_long(label, *source, options.profile);
  if (result->faults.in_warmup > 0) {
    std::fprintf(stderr, "%s: %lld faults lie in the warm-up: they happen, but have no figures\n",
                 label.c_str(), static_cast<long long>(result->faults.in_warmup));
  }
  return result;
}

LoadStep load_step(const Result& r, double goodput) {
  LoadStep step;
  step.rate = r.duration_s > 0 ? static_cast<double>(r.requests) / r.duration_s : 0;
  step.goodput = r.goodput;
  step.ttft_p99_ms = r.ttft_ms.p99;
  step.tpot_p99_ms = r.tpot_p99_ms;
  step.holds = r.goodput >= goodput;
  return step;
}

PageFacts page_facts(std::string_view command, const SourceFlags& source, const SimulationOptions& options) {
  PageFacts facts;
  facts.title = absl::StrCat("troupe-sim ", to_absl(command));
  facts.source = source_description(source);
  facts.made = made_words();
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

}  // namespace troupe::sim
