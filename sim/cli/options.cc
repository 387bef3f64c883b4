#include "sim/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/regular_file.h"
#include "common/settings/yaml.h"
#include "gateway/access/api_key_file.h"
#include "gateway/route/policy/policy.h"
#include "gateway/route/settings.h"
#include "sim/cli/command_line.h"
#include "sim/trace/trace.h"
#include "sim/workload/presets.h"
#include "worker/schedule/setting_names.h"

namespace troupe::sim {

namespace {

// Numbers between colons, at least `least` and at most `most`; empty where the text is none of these.
std::vector<double> parse_numbers(std::string_view text, size_t least, size_t most) {
  std::vector<double> parts;
  for (std::string_view rest = text; parts.size() <= most;) {
    const std::string_view part = rest.substr(0, rest.find(':'));
    double value = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), value);
    if (read.ec != std::errc() || read.ptr != part.data() + part.size() || !std::isfinite(value) ||
        std::abs(value) > 1e8)
      return {};
    parts.push_back(value);
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  return parts.size() < least || parts.size() > most ? std::vector<double>() : parts;
}

Duration seconds(double s) {
  return Duration(std::llround(s * 1e9));
}

// "0.4:300:60" or "0.4:300:60:3000"
StatusOr<FlashCrowd> parse_flash(std::string_view text) {
  const std::vector<double> parts = parse_numbers(text, 3, 4);
  if (parts.empty()) {
    return invalid_argument(absl::StrCat("--flash '", to_absl(text),
                                         "': must be SHARE:BEGIN_S:DURATION_S or "
                                         "SHARE:BEGIN_S:DURATION_S:CARD_TOKENS, as 0.4:300:60"));
  }
  FlashCrowd flash;
  flash.share = parts[0];
  flash.begin = seconds(parts[1]);
  flash.duration = seconds(parts[2]);
  flash.card_tokens = parts.size() == 4 ? parts[3] : 0;
  return flash;
}

// "2:300:20"
StatusOr<Burst> parse_burst(std::string_view text) {
  const std::vector<double> parts = parse_numbers(text, 3, 3);
  if (parts.empty()) {
    return invalid_argument(
        absl::StrCat("--burst '", to_absl(text), "': must be TIMES:BEGIN_S:DURATION_S, as 2:300:20"));
  }
  return Burst{parts[0], seconds(parts[1]), seconds(parts[2])};
}

}  // namespace

void describe_source(SettingsSchema& schema, SourceFlags& f) {
  schema
      .add("trace", &f.trace,
           "files of requests, JSON lines or a table as described below, gzipped or not; several, FILE,FILE "
           "or --trace again, are joined by time: records of gateways with one record_secret")
      .path();
  schema.add("rate_scale", &f.trace_options.rate_scale, "requests come so many times as fast")
      .range(1e-6, 1e6);
  schema
      .add_fraction("spread_ms", &f.trace_options.spread,
                    "a trace's requests of one timestamp are spread over so long, up to the next one")
      .range(0, 1e7)
      .unit("ms");
  schema.add("skip_bad", &f.trace_options.skip_bad,
             "count lines of the trace that cannot be used instead of refusing them");
}

void describe_workload(SettingsSchema& schema, SourceFlags& f) {
  PersonaWorkload& w = f.workload;
  schema.add("like", &f.like, preset_words()).choices(preset_names());
  schema.add("personas", &w.personas, "personas").range(1, 1e7);
  schema.add("zipf", &w.zipf, "popularity of rank r is r to the minus this; 0: all alike").range(0, 10);
  schema.add("card_tokens", &w.card_tokens, "mean length of a persona's card (log-normal)").range(1, 1e6);
  schema.add("card_sigma", &w.card_sigma, "its sigma").range(0, 3);
  schema.add("card_tokens_min", &w.card_tokens_min, "shortest card").range(1, 1e6);
  schema.add("card_tokens_max", &w.card_tokens_max, "longest card").range(1, 1e6);
  schema.add("system_tokens", &w.system_tokens, "line that all personas begin with").range(0, 1e6);
  schema.add("turns", &w.turns, "mean turns of a conversation (geometric)").range(1, 10'000);
  schema.add("think_s", &w.think_s, "mean time a user thinks (exponential)").range(0, 1e6).unit("s");
  schema
      .add("answer_s_per_token", &w.answer_s_per_token,
           "a user reads so long for each token of an answer before thinking; open loop, so not measured")
      .range(0, 100)
      .unit("s");
  schema.add("user_tokens", &w.user_tokens, "mean length of a user's turn (log-normal)").range(1, 1e6);
  schema.add("output_tokens", &w.output_tokens, "mean length of an answer (log-normal)").range(1, 1e6);
  schema.add("turn_sigma", &w.turn_sigma, "sigma of both").range(0, 3);
  schema.add("rate", &w.rate, "requests a second").range(1e-6, 1e7);
  schema
      .add("arrival_cv", &w.arrival_cv,
           "coefficient of variation of the gaps between two conversations' beginnings (gamma); 1: Poisson. "
           "ServeGen's production clients: median 1.2 to 1.3, p90 5.1 to 5.5, p99 27 to 31")
      .range(0.05, 50);
  schema.add("ramp_s", &w.ramp_s, "the rate rises from 0 for so long").range(0, 1e8).unit("s");
  schema.add("duration_s", &w.duration_s, "length of the trace").range(0, 1e8).unit("s");
  schema.add("block_size", &w.block_tokens, "tokens a block id stands for").range(1, 65'536);
  schema
      .add("context", &w.context_tokens,
           "tokens of prompt and answer; older turns are dropped to stay inside")
      .range(1, 1e8);
  schema.add("swipe", &w.swipe, "share of answers that are asked for again").range(0, 0.95);
  schema.add("edits_per_s", &w.edits_per_s, "cards rewritten").range(0, 1e6);
  schema.add("drift", &w.drift_swaps_per_s, "a second, so many pairs of personas swap their popularity")
      .range(0, 1e6);
  schema.add("flash", &f.flash, "flash crowd: SHARE:BEGIN_S:DURATION_S[:CARD_TOKENS], on top of the rate");
  schema.add("burst", &f.burst, "TIMES:BEGIN_S:DURATION_S: conversations begin so many times as often");
}

std::optional<int> read_source_flags(SettingsSchema& schema, SourceFlags& f, std::string_view program,
                                     int argc, const char* const* argv) {
  const std::string before = f.like;
  auto code = read_flags(schema, program, argc, argv);
  if (code || f.like == before) return code;
  f.workload = workload_like(f.like);
  return read_flags(schema, program, argc, argv);  // again, over it
}

StatusOr<PersonaWorkload> workload_of(const SourceFlags& f) {
  PersonaWorkload w = f.workload;
  if (!f.flash.empty()) {
    TROUPE_ASSIGN_OR_RETURN(w.flash, parse_flash(f.flash));
  }
  if (!f.burst.empty()) {
    TROUPE_ASSIGN_OR_RETURN(w.burst, parse_burst(f.burst));
  }
  TROUPE_RETURN_IF_ERROR(check_workload(w));
  return w;
}

StatusOr<std::unique_ptr<RequestSource>> open_source(const SourceFlags& f, uint64_t seed, double load,
                                                     int64_t model_tokens_max) {
  if (!f.trace.empty()) {
    TraceOptions options = f.trace_options;
    options.rate_scale *= load;
    options.model_tokens_max = model_tokens_max;
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<RequestSource> reader, TraceReader::open_all(f.trace, options));
    return reader;
  }
  TROUPE_ASSIGN_OR_RETURN(PersonaWorkload w, workload_of(f));
  w.rate *= f.trace_options.rate_scale * load;
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<RequestSource> source, PersonaSource::make(w, seed));
  return source;
}

namespace {

constexpr std::string_view kNotOfATrace =
    " shapes made-up traffic, not the requests of --trace; these can only come faster or slower: "
    "--rate-scale";

// The file that flags were read from before; empty: none.
std::string config_path_of(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--config";
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == kFlag && i + 1 < argc) path = argv[i + 1];
    if (argument.starts_with(kFlag) && argument.substr(kFlag.size()).starts_with('='))
      path = argument.substr(kFlag.size() + 1);
  }
  return path;
}

Status refuse_in_file(const SettingsSchema& these, std::string_view why, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const std::string text, read_regular_file(path, kYamlBytesMax));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, flatten_yaml(text, path));
  const std::vector<std::string> keys = these.keys();
  for (const YamlEntry& entry : entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end())
      return invalid_argument(absl::StrCat(path, ":", entry.line, ": ", entry.key, to_absl(why)));
  }
  return absl::OkStatus();
}

}  // namespace

Status refuse_given(const SettingsSchema& these, std::string_view why, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view flag = std::string_view(argv[i]).substr(0, std::string_view(argv[i]).find('='));
    if (!flag.starts_with("--")) continue;
    flag.remove_prefix(2);
    for (std::string key : these.keys()) {
      std::replace(key.begin(), key.end(), '_', '-');
      if (flag == key || flag == "no-" + key)
        return invalid_argument(absl::StrCat("--", to_absl(flag), to_absl(why)));
    }
  }
  return refuse_in_file(these, why, config_path_of(argc, argv));
}

Status check_source(const SourceFlags& f, int argc, const char* const* argv) {
  if (f.trace.empty()) return absl::OkStatus();
  SourceFlags unused;
  SettingsSchema workload("", "");
  describe_workload(workload, unused);
  return refuse_given(workload, kNotOfATrace, argc, argv);
}

std::optional<int64_t> print_skipped(std::string_view label, const RequestSource& source,
                                     const SourceFlags& f) {
  const auto* reader = dynamic_cast<const TraceReader*>(&source);
  if (reader == nullptr || !f.trace_options.skip_bad) return std::nullopt;
  const int64_t count = reader->skipped_count();
  if (count > 0) {
    std::fprintf(stderr, "%.*s: %lld lines of the trace were skipped\n", static_cast<int>(label.size()),
                 label.data(), static_cast<long long>(count));
  }
  return count;
}

std::string source_description(const SourceFlags& f) {
  if (f.trace.empty()) return absl::StrCat("made-up persona traffic like ", f.like);
  std::vector<std::string> names;
  for (const std::string& path : f.trace) names.push_back(std::filesystem::path(path).filename().string());
  return absl::StrCat("trace ", absl::StrJoin(names, " and "));
}

void print_notes(std::string_view label, const RequestSource& source) {
  const auto* reader = dynamic_cast<const TraceReader*>(&source);
  if (reader == nullptr) return;
  for (const std::string& note : reader->notes())
    std::fputs(absl::StrCat(to_absl(label), ": ", note, "\n").c_str(), stderr);
}

void print_too_long(std::string_view label, const RequestSource& source, const NodeProfile& profile) {
  const auto* reader = dynamic_cast<const TraceReader*>(&source);
  if (reader == nullptr) return;
  const TraceReader::TooLong& found = reader->too_long();
  if (found.first_line == 0) return;
  const std::string text =
      absl::StrCat(to_absl(label), ": ", found.prompts, " prompts of the trace are too long for the ",
                   profile.max_model_len, " tokens of profile ", profile.name, " and lost, ", found.answers,
                   " answers are cut short; the first: ", found.first_path, ":", found.first_line, "\n");
  std::fputs(text.c_str(), stderr);
}

void describe_nodes(SettingsSchema& schema, FleetFlags& f) {
  schema.add("nodes", &f.options.nodes, "workers").range(1, 100'000);
}

void describe_fleet(SettingsSchema& schema, FleetFlags& f) {
  SimulationOptions& o = f.options;
  route::describe_policy(schema, o.router);
  schema.add("gateways", &o.gateways, "gateways; a request comes to any of them").range(1, 1'000);
  schema.add("session_sticky", &o.session_sticky, "a session's requests come to one gateway");
  schema.add("profile", &f.profile, "node: a name in configs/sim, or a path ending in .yaml").path();
  schema.add("seed", &o.seed, "the same seed gives the same report, to the byte").range(0, 1e15);
  schema.add("warmup_s", &o.warmup_s, "requests that arrive before are served but not counted")
      .range(0, 1e8)
      .unit("s");
  schema.add("slo_ttft_ms", &o.slo_ttft_ms, "good: first token within").range(0, 1e9).unit("ms");
  schema.add("slo_tpot_ms", &o.slo_tpot_ms, "good: mean time between tokens within").range(0, 1e9).unit("ms");
  schema
      .add_fraction("tpot_budget_ms", &o.scheduler.tpot_budget,
                    "how long prefill may make a step in which others decode; 0: as long as it takes")
      .range(0, 1e6)
      .unit("ms");
  schema.add_enum(
      "batching", &o.scheduler.batching, kBatchingNames,
      "a node's steps: decodes and prompt chunks together; prompts first, decodes apart; or that of "
      "batches which nobody joins before all of them have ended");
  schema.add("drain_s", &o.drain_s, "after the last arrival; what has no token then is lost")
      .range(0, 1e6)
      .unit("s");
  schema
      .add("faults", &f.faults,
           "file of what goes wrong: JSON lines as {\"at_s\": 60, \"kill\": 3}; also return, join, drain, "
           "slow, stall, lose_reports, lose_residency and restart_gateway")
      .path();
  schema.add("network_ms", &o.network_ms, "one way between gateway and worker").range(0, 1e5).unit("ms");
  schema.add("report_ms", &o.report_ms, "between two load reports of a node").range(1, 1e6).unit("ms");
  schema.add("residency_delay_ms", &o.residency_delay_ms, "until a worker's residency event is known")
      .range(0, 1e6)
      .unit("ms");
  schema.add("gossip_ms", &o.gossip_ms, "between two exchanges of gateways").range(1, 1e6).unit("ms");
  schema.add("peer_ledger", &f.peer_ledger, "several gateways tell each other what they have in flight");
  schema.add("detect_ms", &o.detect_ms, "until a dead node's connections are seen broken")
      .range(0, 1e6)
      .unit("ms");
  schema.add("join_ms", &o.join_ms, "until a node that came back is used again").range(0, 1e6).unit("ms");
  schema
      .add("join_ramp_s", &o.join_ramp_s,
           "policy affinity: a node that joins or came back rises from a tenth of its share to all of it; 0: "
           "at once")
      .range(0, 3600)
      .unit("s");
  schema
      .add("handover_s", &o.handover_s,
           "policy affinity: so long its personas are computed there ahead of their requests; 0: none are")
      .range(0, 3600)
      .unit("s");
  schema.add(
      "resume", &o.resume,
      "started streams go on elsewhere when their node dies; else, as with workers of another kind, they "
      "end in an error and count as lost");
  schema.add(
      "admission.enabled", &o.admission.enabled,
      "requests wait in their gateway while the workers are full, as live, by admission.*; else they go "
      "to the workers at once and wait there. A limit that is set switches it on");
  schema
      .add("api_keys", &f.api_keys,
           "file of API keys, as the gateway's: its limits hold for requests whose trace names a key. "
           "Switches the queue on")
      .path();
  route::describe(schema, o.admission.controller.room);
  route::describe(schema, o.admission.controller.admission);
  route::describe_route(schema, o.router);
}

StatusOr<SimulationOptions> simulation_of(const FleetFlags& f) {
  SimulationOptions o = f.options;
  TROUPE_ASSIGN_OR_RETURN(o.profile, load_node_profile(f.profile));
  route::settle_route(o.router);
  o.router.affinity.peer_ledger =
      f.peer_ledger && o.gateways > 1 && route::policy_info(o.router.policy).follows_table;
  if (!f.api_keys.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<ApiKey> keys, read_api_keys(f.api_keys));
    for (const ApiKey& key : keys) o.admission.keys.emplace(id_of(key.name), key.rights);
  }
  if (!f.faults.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const std::string text, read_regular_file(f.faults, kYamlBytesMax));
    TROUPE_ASSIGN_OR_RETURN(o.faults, parse_faults(text, f.faults));
  }
  return o;
}

}  // namespace troupe::sim
