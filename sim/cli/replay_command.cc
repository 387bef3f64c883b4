// replay and compare: the same run, once or for several policies.

#include <cstdio>

#include "gateway/route/policy/policy.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/options.h"
#include "sim/cli/parallel_runs.h"
#include "sim/cli/requests_file.h"
#include "sim/cli/run_once.h"
#include "sim/report/report.h"

namespace troupe::sim {

int replay_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim replay";
  RunFlags run;
  SettingsSchema schema(kProgram, "what would this fleet do with these requests?");
  if (const auto code = read_run_flags(schema, run, kProgram, argc, argv)) return *code;
  auto requests = RequestsFile::open(run.output.requests);
  if (!requests.ok()) return fail(kProgram, requests.status());
  run.options.on_request = requests->on_request();
  ProgressLine progress;
  const auto result = run_once(run.source, run.options, 1, run.options.router.policy, progress);
  if (!result.ok()) return fail(kProgram, result.status());
  if (const Status written = requests->close(); !written.ok()) return fail(kProgram, written);
  const std::span<const Result> one(&*result, 1);
  if (run.output.report != "-") std::fputs(table_text(one).c_str(), stdout);
  PageFacts facts = page_facts("replay", run.source, run.options);
  facts.command = command_line(argc, argv);
  const Status written = write_outputs(run.output, report_json(*result), one, facts);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

namespace {

StatusOr<std::vector<std::string>> policies_of(const std::vector<std::string>& asked) {
  if (asked.size() == 1 && asked[0] == "all") return route::policy_names();
  for (const std::string& policy : asked) {
    if (const Status known = route::check_policy(policy); !known.ok()) return annotate(known, "--policies");
  }
  if (asked.empty()) return invalid_argument("--policies: name at least one, or all");
  return asked;
}

}  // namespace

int compare_command(int argc, const char* const* argv) {
  constexpr char kProgram[] = "troupe-sim compare";
  RunFlags run;
  std::vector<std::string> asked{"all"};
  int64_t jobs = 0;
  SettingsSchema schema(kProgram, "what would each policy do with the same requests?");
  schema.add("policies", &asked, "names, or all").choices([] {
    std::vector<std::string> names = route::policy_names();
    names.push_back("all");
    return names;
  }());
  describe_jobs(schema, jobs, "policies");
  if (const auto code = read_run_flags(schema, run, kProgram, argc, argv)) return *code;
  if (const Status checked = check_no_requests(run.output); !checked.ok()) return fail(kProgram, checked);
  const auto policies = policies_of(asked);
  if (!policies.ok()) return fail(kProgram, policies.status());
  std::vector<Result> results(policies->size());
  ProgressLine progress;
  const Status ran = parallel_runs(results.size(), jobs_of(jobs), [&](size_t i) -> Status {
    SimulationOptions options = run.options;
    options.router.policy = (*policies)[i];
    TROUPE_ASSIGN_OR_RETURN(results[i], run_once(run.source, options, 1, options.router.policy, progress));
    return absl::OkStatus();
  });
  if (!ran.ok()) return fail(kProgram, ran);
  if (run.output.report != "-") std::fputs(table_text(results).c_str(), stdout);
  PageFacts facts = page_facts("compare", run.source, run.options);
  facts.command = command_line(argc, argv);
  const Status written = write_outputs(run.output, comparison_json(results), results, facts);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
