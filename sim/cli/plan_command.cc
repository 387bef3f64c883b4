// plan: the kind and number of GPUs for a model and a load, or for a trace.

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/json/writer.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/plan_trace.h"
#include "sim/report/output_file.h"
#include "sim/sizing/sizing.h"
#include "sim/sizing/sizing_profile.h"

namespace troupe::sim {

namespace {

constexpr char kProgram[] = "troupe-sim plan";

struct Row {
  Gpu gpu;
  Sizing sizing;
};

std::vector<std::string> gpu_choices() {
  std::vector<std::string> names;
  for (const Gpu& gpu : known_gpus()) names.emplace_back(gpu.name);
  names.push_back("all");
  return names;
}

std::vector<Row> rows_of(const ModelShape& model, const std::vector<std::string>& asked, const Load& load,
                         std::span<const int> gpus_of_a_node, double price_per_hour) {
  std::vector<Row> rows;
  for (Gpu gpu : known_gpus()) {
    const bool wanted = std::any_of(asked.begin(), asked.end(),
                                    [&](const std::string& a) { return a == "all" || a == gpu.name; });
    if (!wanted) continue;
    if (price_per_hour > 0) gpu.price_per_hour = price_per_hour;
    rows.push_back({gpu, cheapest_node(model, gpu, load, gpus_of_a_node)});
  }
  return rows;
}

// The cheapest for the load, or per token without a load; null: none qualifies.
const Row* best_of(const std::vector<Row>& rows) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.sizing.requests_per_s > 0 && (best == nullptr || price_of(row.sizing) < price_of(best->sizing)))
      best = &row;
  }
  return best;
}

std::string text_of(const ModelShape& model, const std::vector<Row>& rows, const Load& load,
                    std::span<const int> gpus_of_a_node) {
  const std::string most = absl::StrCat(gpus_of_a_node.back());
  std::string out = absl::StrFormat(
      "%s: weights %.1f GB, KV %.0f KiB a token (bfloat16)\n"
      "requests of %.0f prompt tokens (%.0f %% of them cached) and %.0f answered, a token within %.0f ms\n\n"
      "%-9s %4s %9s %8s %10s %9s %8s %8s %10s %7s %8s",
      model.name, model.weight_bytes() / 1e9, model.kv_bytes_per_token() / 1024, load.prompt_tokens,
      load.hit * 100, load.output_tokens, load.tpot_ms, "GPU", "n", "KV tokens", "sessions", "prefill/s",
      "TTFT ms", "1 stream", "streams", "decode/s", "req/s", "$/Mtoken");
  out += load.rate > 0 ? absl::StrFormat(" %6s %8s\n", "nodes", "$/h") : "\n";
  for (const Row& row : rows) {
    const Sizing& s = row.sizing;
    if (s.fits && s.requests_per_s <= 0) {
      absl::StrAppend(
          &out,
          absl::StrFormat(
              "%-9s %4d %9.0f %8.0f %10.0f %9.1f %8.0f too slow for a token within %.4g ms, even on %d\n",
              to_absl(row.gpu.name), s.gpus, s.kv_tokens, s.sessions, s.prefill_tokens_per_s, s.prefill_ms,
              s.stream_tokens_per_s, load.tpot_ms, s.gpus));
      continue;
    }
    if (!s.fits) {
      absl::StrAppend(&out,
                      absl::StrFormat("%-9s does not fit, not even on %s\n", to_absl(row.gpu.name), most));
      continue;
    }
    absl::StrAppend(
        &out, absl::StrFormat("%-9s %4d %9.0f %8.0f %10.0f %9.1f %8.0f %8.0f %10.0f %7.1f %8.2f",
                              to_absl(row.gpu.name), s.gpus, s.kv_tokens, s.sessions, s.prefill_tokens_per_s,
                              s.prefill_ms, s.stream_tokens_per_s, s.decode_streams, s.decode_tokens_per_s,
                              s.requests_per_s, s.price_per_million));
    if (load.rate > 0) absl::StrAppend(&out, absl::StrFormat(" %6d %8.2f", s.nodes, s.fleet_price_per_hour));
    out += '\n';
  }
  const Row* best = best_of(rows);
  absl::StrAppend(
      &out, "\nbest: ", best != nullptr ? to_absl(best->gpu.name) : "none keeps the limit",
      best == nullptr ? std::string()
      : load.rate > 0 ? absl::StrFormat(", %d nodes of %d for %.4g requests/s", best->sizing.nodes,
                                        best->sizing.gpus, load.rate)
                      : absl::StrFormat(", %d a node, the cheapest a token", best->sizing.gpus),
      absl::StrFormat(
          "\nn: GPUs a node%s. $/Mtoken: of answered tokens, at %.4g %% of req/s as nodes are planned "
          "(--headroom).",
          gpus_of_a_node.size() == 1 ? ""
                                     : absl::StrCat(", of ", absl::StrJoin(gpus_of_a_node, ", "),
                                                    " the cheapest that keeps the limit"),
          load.headroom * 100),
      "\nEstimates from data sheets, prices are assumptions (--price-per-hour); the share cached is what "
      "routing decides: see replay.\n");
  return out;
}

std::string json_of(const ModelShape& model, const std::vector<Row>& rows, const Load& load) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.key("model");
  w.text(model.name);
  w.field("weight_bytes", model.weight_bytes());
  w.field("kv_bytes_per_token", model.kv_bytes_per_token());
  w.field("rate", load.rate);
  w.field("prompt_tokens", load.prompt_tokens);
  w.field("hit", load.hit);
  w.field("output_tokens", load.output_tokens);
  w.field("tpot_ms", load.tpot_ms);
  w.key("gpus");
  w.open('[');
  for (const Row& row : rows) {
    const Sizing& s = row.sizing;
    w.open('{');
    w.key("gpu");
    w.text(row.gpu.name);
    w.count("fits", s.fits ? 1 : 0);
    w.count("gpus_per_node", s.gpus);
    w.field("kv_tokens", s.kv_tokens);
    w.field("sessions", s.sessions);
    w.field("prefill_tokens_per_s", s.prefill_tokens_per_s);
    w.field("prefill_ms", s.prefill_ms);
    w.field("stream_tokens_per_s", s.stream_tokens_per_s);
    w.field("decode_streams", s.decode_streams);
    w.field("decode_tokens_per_s", s.decode_tokens_per_s);
    w.field("requests_per_s", s.requests_per_s);
    w.field("price_per_million_tokens", s.price_per_million);
    w.count("nodes", s.nodes);
    w.field("fleet_price_per_hour", s.fleet_price_per_hour);
    w.close('}');
  }
  w.close(']');
  w.key("best");
  const Row* best = best_of(rows);
  w.text(best != nullptr ? best->gpu.name : "");
  w.close('}');
  return out + '\n';
}

Status write_profile(const std::string& path, const ModelShape& model, const Row* best) {
  if (!path.ends_with(".yaml"))
    return invalid_argument(absl::StrCat("--write-profile '", path, "': must end in .yaml, as replay asks"));
  if (best == nullptr)
    return invalid_argument("--write-profile: there is no node to write, for none keeps the limit");
  return write_file(path, profile_yaml(model, best->gpu, best->sizing.gpus));
}

}  // namespace

namespace {

struct PlanFlags {
  std::string model;
  std::vector<std::string> gpus{"all"};
  Load load;
  double price_per_hour = 0;
  int64_t gpus_per_node = 0;
  bool json = false;
  std::string write_profile;
  PlanTraceFlags of_trace;
};

// The load, which a trace has by itself.
void describe_load(SettingsSchema& schema, Load& load) {
  schema.add("load", &load.rate, "requests a second that the fleet must carry; 0: only what a node can")
      .range(0, 1e7);
  schema.add("prompt_tokens", &load.prompt_tokens, "mean length of a prompt").range(1, 1e7);
  schema.add("hit", &load.hit, "share of prompt tokens found in a cache").range(0, 1);
  schema.add("output_tokens", &load.output_tokens, "mean length of an answer").range(1, 1e6);
  schema.add("tpot_ms", &load.tpot_ms, "mean time between tokens within").range(0.1, 1e6).unit("ms");
}

void describe_plan(SettingsSchema& schema, PlanFlags& f) {
  schema.add(
      "model", &f.model,
      absl::StrCat("a directory with a config.json, or one of ", absl::StrJoin(model_shape_names(), ", ")));
  schema.add("gpu", &f.gpus, "GPUs to compare").choices(gpu_choices());
  schema
      .add("gpus_per_node", &f.gpus_per_node,
           absl::StrCat("GPUs a model is spread over; 0: of ", absl::StrJoin(kGpusOfANode, ", "),
                        " the cheapest"))
      .range(0, 64);
  describe_load(schema, f.load);
  schema.add("headroom", &f.load.headroom, "share of a node's highest rate to plan with").range(0.05, 1);
  schema.add("price_per_hour", &f.price_per_hour, "of one GPU, USD; 0: the assumed one of each")
      .range(0, 1e6);
  schema.add("json", &f.json, "print JSON instead of a table; with --trace: --report -");
  schema
      .add("write_profile", &f.write_profile,
           "write the best as a node to simulate: FILE.yaml, which replay --profile reads")
      .path();
  describe_plan_trace(schema, f.of_trace);
}

// The choice of a node, which a profile has made.
Status refuse_choice(int argc, const char* const* argv) {
  PlanFlags unused;
  SettingsSchema choice("", "");
  choice.add("gpu", &unused.gpus, "");
  choice.add("gpus_per_node", &unused.gpus_per_node, "");
  choice.add("headroom", &unused.load.headroom, "");
  choice.add("price_per_hour", &unused.price_per_hour, "");
  choice.add("write_profile", &unused.write_profile, "");
  return refuse_given(choice, " has a meaning only with --model: --profile is the node", argc, argv);
}

// Flags that the form asked for, with a trace or without, gives no meaning.
Status check_form(PlanFlags& f, int argc, const char* const* argv) {
  const bool of_trace = !f.of_trace.run.source.trace.empty();
  PlanTraceFlags unused;
  Load load;
  SettingsSchema other("", "");
  if (of_trace) {
    describe_load(other, load);
    TROUPE_RETURN_IF_ERROR(refuse_given(
        other, " is told by the trace (and --slo-tpot-ms is the limit between tokens)", argc, argv));
    SettingsSchema node("", "");
    node.add("profile", &unused.run.fleet.profile, "");
    f.of_trace.profile_asked = !refuse_given(node, "", argc, argv).ok();
    if (f.of_trace.profile_asked == !f.model.empty()) {
      return invalid_argument(
          "--trace: takes either --profile, the node to count, or --model, for which the best one is chosen");
    }
    if (f.of_trace.profile_asked) TROUPE_RETURN_IF_ERROR(refuse_choice(argc, argv));
    std::string& report = f.of_trace.run.output.report;
    if (f.json && !report.empty() && report != "-")
      return invalid_argument("--json: with --trace it is --report -, so that --report FILE cannot be given");
    if (f.json) report = "-";
    TROUPE_RETURN_IF_ERROR(check_no_requests(f.of_trace.run.output));
    return check_outputs(
        {f.of_trace.run.output.report, f.of_trace.run.output.html, f.of_trace.run.output.timing});
  }
  describe_plan_trace(other, unused);
  TROUPE_RETURN_IF_ERROR(refuse_given(other, " has a meaning only with --trace", argc, argv));
  if (f.model.empty())
    return invalid_argument(
        "--model is missing: a directory with a config.json, or a name; or --trace FILE with --profile NAME");
  return absl::OkStatus();
}

// The table by data sheet: for the load given, or the trace's.
StatusOr<Row> print_table(const PlanFlags& f, const Load& load) {
  TROUPE_ASSIGN_OR_RETURN(const ModelShape model, load_model_shape(f.model));
  const auto asked_gpus = static_cast<int>(f.gpus_per_node);
  const std::span<const int> of_a_node =
      asked_gpus == 0 ? std::span<const int>(kGpusOfANode) : std::span(&asked_gpus, 1);
  const std::vector<Row> rows = rows_of(model, f.gpus, load, of_a_node, f.price_per_hour);
  const Row* const best = best_of(rows);
  if (!f.write_profile.empty()) TROUPE_RETURN_IF_ERROR(write_profile(f.write_profile, model, best));
  const bool of_trace = !f.of_trace.run.source.trace.empty();
  const std::string table =
      f.json && !of_trace ? json_of(model, rows, load) : text_of(model, rows, load, of_a_node);
  std::fputs(table.c_str(), f.of_trace.run.output.report == "-" ? stderr : stdout);
  if (best == nullptr && of_trace)
    return absl::FailedPreconditionError(
        "no GPU keeps --slo-tpot-ms with this model, so there is none to count");
  return best != nullptr ? *best : Row();
}

// The node to simulate: a profile's, or the best GPU's for the model under the trace's load.
StatusOr<SimulationOptions> node_of(PlanFlags& f, const TraceLoad& traced) {
  FleetFlags fleet = f.of_trace.run.fleet;
  TROUPE_ASSIGN_OR_RETURN(SimulationOptions options, simulation_of(fleet));
  if (f.of_trace.profile_asked) return options;
  Load load = f.load;
  load.rate = traced.rate;
  load.prompt_tokens = traced.prompt_tokens;
  load.output_tokens = std::max(1.0, traced.output_tokens);
  load.hit = traced.shared;
  load.tpot_ms = options.slo_tpot_ms;
  TROUPE_ASSIGN_OR_RETURN(const Row best, print_table(f, load));
  TROUPE_ASSIGN_OR_RETURN(const ModelShape model, load_model_shape(f.model));
  options.profile = derived_profile(model, best.gpu, best.sizing.gpus);
  options.profile.name = absl::StrCat(best.sizing.gpus, " x ", to_absl(best.gpu.name), " with ", model.name);
  return options;
}

int plan_for_trace(PlanFlags& f, int argc, const char* const* argv) {
  const auto load = load_of_trace(f.of_trace);
  if (!load.ok()) return fail(kProgram, load.status());
  std::fprintf(f.of_trace.run.output.report == "-" ? stderr : stdout, "%s: %s\n\n",
               source_description(f.of_trace.run.source).c_str(), load_words(*load).c_str());
  auto options = node_of(f, *load);
  if (!options.ok()) return fail(kProgram, options.status());
  return plan_trace(f.of_trace, {kProgram, *std::move(options), *load, command_line(argc, argv)});
}

}  // namespace

int plan_command(int argc, const char* const* argv) {
  PlanFlags flags;
  SettingsSchema schema(kProgram, "which GPU, and how many, for a model and a load, or for a trace?");
  describe_plan(schema, flags);
  if (const auto code = read_flags(schema, kProgram, argc, argv)) return *code;
  if (const Status checked = check_form(flags, argc, argv); !checked.ok()) return fail(kProgram, checked);
  if (!flags.of_trace.run.source.trace.empty()) return plan_for_trace(flags, argc, argv);
  const auto printed = print_table(flags, flags.load);
  return printed.ok() ? kExitOk : fail(kProgram, printed.status());
}

}  // namespace troupe::sim
