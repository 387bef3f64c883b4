#include "sim/cli/plan_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/cli/commands.h"
#include "sim/cli/searched_runs.h"
#include "sim/report/report.h"

namespace troupe::sim {

namespace {

constexpr double kNodesSearchedMax = 4096;

struct Found {
  Probe best;
  std::vector<LoadStep> steps;
};

void print_fleet(std::FILE* out, const LoadStep& step) {
  std::fprintf(out, "%5d nodes %8.1f requests/s  goodput %.4f  ttft p99 %.0f ms  tpot p99 %.1f ms  %s\n",
               step.nodes, step.rate, step.goodput, step.ttft_p99_ms, step.tpot_p99_ms,
               step.holds ? "enough" : "too few");
  std::fflush(out);
}

std::string nodes_word(int64_t count) {
  return absl::StrCat(count, count == 1 ? " node" : " nodes");
}

// Requests that are lost however many nodes there are make more of them useless.
Status never_enough(const Probe& last, double goodput) {
  const Result& r = last.result;
  std::string why = absl::StrFormat(
      "even %s of %s would answer only %.2f %% of the requests inside both limits, not %.4g %%",
      nodes_word(r.nodes), r.profile, r.goodput * 100, goodput * 100);
  if (!r.losses.empty())
    absl::StrAppend(&why, "; of ", r.lost, " lost ones, ", r.losses.front().count, " ", r.losses.front().why);
  absl::StrAppend(&why, absl::StrFormat(" (TTFT p50 %.0f ms, mean TPOT %.1f ms): a faster node, other limits "
                                        "(--slo-ttft-ms, --slo-tpot-ms) or a smaller --goodput",
                                        r.ttft_ms.p50, r.tpot_mean_ms));
  return absl::FailedPreconditionError(why);
}

StatusOr<Found> search(const PlanTraceFlags& flags, const PlanTraceRun& run, std::FILE* text_out) {
  ProgressLine progress;
  Prober<NodeSearch> prober(flags.jobs, [&](double nodes) -> StatusOr<Probe> {
    SimulationOptions options = run.options;
    options.nodes = static_cast<int32_t>(nodes);
    Probe probe;
    TROUPE_ASSIGN_OR_RETURN(probe.result,
                            run_once(flags.run.source, options, 1, nodes_word(options.nodes), progress));
    probe.step = load_step(probe.result, flags.goodput);
    probe.step.nodes = options.nodes;
    return probe;
  });
  NodeSearch search{.most = kNodesSearchedMax};
  search.at = std::min(static_cast<double>(nodes_at_least(run.load, run.options.profile)), search.most);
  Found found;
  LoadStep before;  // of the largest fleet that was too small
  double ttft_before_ms = 0;
  while (!search.is_over()) {
    TROUPE_ASSIGN_OR_RETURN(Probe probe, prober.probe(search));
    if (probe.result.requests == 0)
      return invalid_argument("no request arrives after the warm-up: a shorter --warmup-s");
    print_fleet(text_out, probe.step);
    found.steps.push_back(probe.step);
    const bool holds = probe.step.holds;
    // Twice the nodes, and nothing is better: no request waits for another, so it is not the number.
    const bool vain = !holds && search.high == 0 && before.nodes > 0 &&
                      probe.step.goodput <= before.goodput &&
                      probe.result.ttft_ms.p50 >= 0.99 * ttft_before_ms;
    if (vain || (!holds && search.at >= search.most)) return never_enough(probe, flags.goodput);
    if (!holds) before = probe.step;
    if (!holds) ttft_before_ms = probe.result.ttft_ms.p50;
    search = search.after(holds);
    if (holds) found.best = std::move(probe);
  }
  return found;
}

std::string answer_words(const PlanTraceFlags& flags, const PlanTraceRun& run, const Found& found) {
  const Result& r = found.best.result;
  std::string out = absl::StrFormat(
      "%s of %s %s enough for %s: %.2f %% of its requests are answered inside both limits (first token "
      "within %.4g ms, a token every %.4g ms; asked for: %.4g %%).",
      nodes_word(r.nodes), r.profile, r.nodes == 1 ? "is" : "are", source_description(flags.run.source),
      r.goodput * 100, run.options.slo_ttft_ms, run.options.slo_tpot_ms, flags.goodput * 100);
  const LoadStep* below = nullptr;  // the largest fleet that is too small
  for (const LoadStep& step : found.steps) {
    if (!step.holds && (below == nullptr || step.nodes > below->nodes)) below = &step;
  }
  if (below != nullptr) {
    absl::StrAppend(
        &out, absl::StrFormat(" With %s it is %.2f %%.", nodes_word(below->nodes), below->goodput * 100));
  }
  return out;
}

}  // namespace

NodeSearch NodeSearch::after(bool holds) const {
  NodeSearch next = *this;
  (holds ? next.high : next.low) = at;
  next.at = next.high == 0 ? std::min(at * 2, most) : std::floor((next.low + next.high) / 2);
  return next;
}

void describe_plan_trace(SettingsSchema& schema, PlanTraceFlags& flags) {
  describe_source(schema, flags.run.source);
  schema.add("goodput", &flags.goodput, "with --trace: share of requests that must be inside both limits")
      .range(0.01, 1);
  describe_fleet(schema, flags.run.fleet);
  describe_output(schema, flags.run.output);
  describe_jobs(schema, flags.jobs, "with --trace: fleets");
}

StatusOr<TraceLoad> load_of_trace(const PlanTraceFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const auto source, open_source(flags.run.source, 1, 1, 0));
  return measure_load(*source);
}

std::string load_words(const TraceLoad& load) {
  return absl::StrFormat(
      "%d requests in %.0f s, %.4g a second: prompts of %.0f tokens, of which a cache can find %.0f %%, "
      "answers "
      "of %.0f",
      load.requests, load.duration_s, load.rate, load.prompt_tokens, load.shared * 100, load.output_tokens);
}

int plan_trace(const PlanTraceFlags& flags, const PlanTraceRun& run) {
  std::FILE* const text_out = flags.run.output.report == "-" ? stderr : stdout;
  auto found = search(flags, run, text_out);
  if (!found.ok()) return fail(run.program, found.status());
  PageFacts facts = page_facts("plan", flags.run.source, run.options);
  facts.command = run.command;
  facts.steps = found->steps;
  facts.answer = answer_words(flags, run, *found);
  const Result& best = found->best.result;
  const std::span<const Result> one(&best, 1);
  std::fprintf(text_out, "\n%s\n", facts.answer.c_str());
  if (text_out == stdout) std::fputs(table_text(one).c_str(), stdout);
  const NodesAnswer answer{best.nodes, facts.answer, found->steps};
  const Status written = write_outputs(flags.run.output, nodes_json(answer, best), one, facts);
  return written.ok() ? kExitOk : fail(run.program, written);
}

}  // namespace troupe::sim
