// plan: the kind and number of GPUs for a model and a load.

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/json/writer.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
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

int plan_command(int argc, const char* const* argv) {
  std::string model_name;
  std::vector<std::string> gpus{"all"};
  Load load;
  double price_per_hour = 0;
  int64_t gpus_per_node = 0;
  bool json = false;
  std::string profile;
  SettingsSchema schema(kProgram, "which GPU, and how many, for a model and a load?");
  schema.add(
      "model", &model_name,
      absl::StrCat("a directory with a config.json, or one of ", absl::StrJoin(model_shape_names(), ", ")));
  schema.add("gpu", &gpus, "GPUs to compare").choices(gpu_choices());
  schema
      .add("gpus_per_node", &gpus_per_node,
           absl::StrCat("GPUs a model is spread over; 0: of ", absl::StrJoin(kGpusOfANode, ", "),
                        " the cheapest"))
      .range(0, 64);
  schema.add("load", &load.rate, "requests a second that the fleet must carry; 0: only what a node can")
      .range(0, 1e7);
  schema.add("prompt_tokens", &load.prompt_tokens, "mean length of a prompt").range(1, 1e7);
  schema.add("hit", &load.hit, "share of prompt tokens found in a cache").range(0, 1);
  schema.add("output_tokens", &load.output_tokens, "mean length of an answer").range(1, 1e6);
  schema.add("tpot_ms", &load.tpot_ms, "mean time between tokens within").range(0.1, 1e6).unit("ms");
  schema.add("headroom", &load.headroom, "share of a node's highest rate to plan with").range(0.05, 1);
  schema.add("price_per_hour", &price_per_hour, "of one GPU, USD; 0: the assumed one of each").range(0, 1e6);
  schema.add("json", &json, "print JSON instead of a table");
  schema.add("write_profile", &profile,
             "write the best as a node to simulate: FILE.yaml, which replay --profile reads");
  if (const auto code = read_flags(schema, kProgram, argc, argv)) return *code;
  if (model_name.empty())
    return fail(kProgram, invalid_argument("--model is missing: a directory with a config.json, or a name"));
  const auto model = load_model_shape(model_name);
  if (!model.ok()) return fail(kProgram, model.status());
  const auto asked_gpus = static_cast<int>(gpus_per_node);
  const std::span<const int> of_a_node =
      asked_gpus == 0 ? std::span<const int>(kGpusOfANode) : std::span(&asked_gpus, 1);
  const std::vector<Row> rows = rows_of(*model, gpus, load, of_a_node, price_per_hour);
  if (!profile.empty()) {
    const Status written = write_profile(profile, *model, best_of(rows));
    if (!written.ok()) return fail(kProgram, written);
  }
  std::fputs((json ? json_of(*model, rows, load) : text_of(*model, rows, load, of_a_node)).c_str(), stdout);
  return kExitOk;
}

}  // namespace troupe::sim
