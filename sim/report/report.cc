#include "sim/report/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/json/writer.h"

namespace troupe::sim {

namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void write_losses(JsonWriter& w, const std::vector<Loss>& losses) {
  w.key("losses");
  w.open('[');
  for (const Loss& loss : losses) {
    w.open('{');
    w.key("why");
    w.text(loss.why);
    w.count("count", loss.count);
    w.close('}');
  }
  w.close(']');
}

void write_figures(JsonWriter& w, const Result& r) {
  w.key("policy");
  w.text(r.policy);
  if (!r.mode.empty()) {
    w.key("mode");
    w.text(r.mode);
  }
  w.key("profile");
  w.text(r.profile);
  w.count("nodes", r.nodes);
  w.count("gateways", r.gateways);
  w.count("seed", static_cast<int64_t>(r.seed));
  w.field("duration_s", r.duration_s);
  w.count("requests", r.requests);
  w.count("lost", r.lost);
  if (!r.losses.empty()) write_losses(w, r.losses);
  w.count("prompt_tokens", r.prompt_tokens);
  w.field("hit_tokens", r.hit_tokens);
  w.field_or_null("pooled_lru_hit", r.has_pool ? std::optional(r.pooled_lru_hit) : std::nullopt);
  w.field("infinite_hit", r.infinite_hit);
  w.field("work_cov", r.work_cov);
  w.field("work_cov5", r.work_cov5);
  w.key("ttft_ms");
  w.open('{');
  w.field("p50", r.ttft_ms.p50);
  w.field("p90", r.ttft_ms.p90);
  w.field("p99", r.ttft_ms.p99);
  w.close('}');
  w.key("tpot_ms");
  w.open('{');
  w.field("mean", r.tpot_mean_ms);
  w.field("p99", r.tpot_p99_ms);
  w.close('}');
  w.field("goodput", r.goodput);
  w.count("preemptions", r.preemptions);
  w.count("retries", r.retries);
  if (r.faults.in_warmup > 0) w.count("faults_in_warmup", r.faults.in_warmup);
  if (r.skipped_lines) w.count("skipped_lines", *r.skipped_lines);
}

void write_faults(JsonWriter& w, const FaultFigures& f) {
  w.key("faults");
  w.open('{');
  w.field_or_null("hit_dip", f.hit_dip);
  w.field_or_null("t95_s", f.t95_s);
  w.field_or_null("p99_before_ms", f.p99_before_ms);
  w.field_or_null("p99_peak_ms", f.p99_peak_ms);
  w.field_or_null("p99_settled_s", f.p99_settled_s);
  w.field("stall_max_ms", f.stall_max_ms);
  w.count("resumed", f.resumed);
  w.close('}');
}

void write_crowd(JsonWriter& w, const CrowdFigures& c) {
  w.key("crowd_ttft_p99_ms");
  w.open('{');
  w.field("before", c.before_ms);
  w.field("crowd", c.crowd_ms);
  w.field("others", c.others_ms);
  w.close('}');
}

// By the names that troupe_gateway_queue_refused_total has.
void write_queue(JsonWriter& w, const QueueFigures& q) {
  w.key("queue");
  w.open('{');
  w.count("waited", q.waited);
  w.key("wait_ms");
  w.open('{');
  w.field("mean", q.wait_mean_ms);
  w.field("p50", q.wait_ms.p50);
  w.field("p90", q.wait_ms.p90);
  w.field("p99", q.wait_ms.p99);
  w.close('}');
  w.count("refused_429", q.refused_429);
  w.count("refused_503", q.refused_503);
  w.key("refused");
  w.open('{');
  for (const QueueFigures::Reason& reason : q.refused) w.count(reason.name, reason.count);
  w.close('}');
  w.close('}');
}

void write_series(JsonWriter& w, const Result& r) {
  w.key("per_second");
  w.open('{');
  w.column("arrived", r.seconds, [](const SecondSeries& s) { return s.arrived; });
  w.column("finished", r.seconds, [](const SecondSeries& s) { return s.finished; });
  w.column("lost", r.seconds, [](const SecondSeries& s) { return s.lost; });
  w.column("hit_tokens", r.seconds,
           [](const SecondSeries& s) { return share(s.hit_tokens, s.prompt_tokens); });
  w.column("ttft_p50_ms", r.seconds, [](const SecondSeries& s) { return s.ttft_p50_ms; });
  w.column("ttft_p99_ms", r.seconds, [](const SecondSeries& s) { return s.ttft_p99_ms; });
  w.column("waiting", r.seconds, [](const SecondSeries& s) { return s.waiting; });
  w.close('}');
  w.key("per_node");
  w.open('[');
  for (const NodeSeries& node : r.node_series) {
    w.open('{');
    w.key("id");
    w.text(node.id);
    w.count("requests", node.requests);
    w.field("hit_tokens", share(node.hit_tokens, node.prompt_tokens));
    w.count("work_tokens", node.work_tokens);
    w.count("preemptions", node.preemptions);
    const auto itself = [](float value) { return value; };
    w.column("work_per_s", node.work_per_s, itself);
    w.column("running", node.running, itself);
    w.column("kv_used", node.kv_used, itself);
    w.column("up", node.up, [](bool up) { return up ? 1 : 0; });
    w.close('}');
  }
  w.close(']');
}

void write_steps(JsonWriter& w, const std::vector<LoadStep>& steps) {
  w.key("steps");
  w.open('[');
  for (const LoadStep& step : steps) {
    w.open('{');
    if (step.nodes > 0) w.count("nodes", step.nodes);
    if (step.nodes == 0) w.field("load", step.load);
    w.field("rate", step.rate);
    w.field("goodput", step.goodput);
    w.field("ttft_p99_ms", step.ttft_p99_ms);
    w.field("tpot_p99_ms", step.tpot_p99_ms);
    w.key("verdict");
    w.text(step.holds ? "holds" : "fails");
    w.close('}');
  }
  w.close(']');
}

void write_run(JsonWriter& w, const Result& r) {
  write_figures(w, r);
  if (r.crowd) write_crowd(w, *r.crowd);
  if (r.queue) write_queue(w, *r.queue);
  if (r.has_faults) write_faults(w, r.faults);
  write_series(w, r);
}

}  // namespace

std::string report_json(const Result& result) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  write_run(w, result);
  w.close('}');
  out += '\n';
  return out;
}

std::string capacity_json(const CapacityAnswer& answer, const Result& result) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.field("sustainable_rate", answer.rate);
  w.field("load", answer.load);
  write_steps(w, answer.steps);
  write_run(w, result);
  w.close('}');
  out += '\n';
  return out;
}

std::string nodes_json(const NodesAnswer& answer, const Result& result) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.count("nodes_needed", answer.nodes);
  w.key("answer");
  w.text(answer.words);
  write_steps(w, answer.steps);
  write_run(w, result);
  w.close('}');
  out += '\n';
  return out;
}

std::string comparison_json(std::span<const Result> results) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.key("runs");
  w.open('[');
  for (const Result& result : results) {
    w.open('{');
    write_run(w, result);
    w.close('}');
  }
  w.close(']');
  w.close('}');
  out += '\n';
  return out;
}

std::string timing_json(std::span<const Result> results) {
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.key("runs");
  w.open('[');
  for (const Result& r : results) {
    w.open('{');
    w.key("policy");
    w.text(r.policy);
    w.count("seed", static_cast<int64_t>(r.seed));
    w.count("simulated_requests", r.simulated_requests);
    w.field("wall_s", r.wall_s);
    w.field("simulated_requests_per_s",
            r.wall_s > 0 ? static_cast<double>(r.simulated_requests) / r.wall_s : 0);
    w.field("decision_us", r.decision_us);
    w.count("events", r.events);
    w.close('}');
  }
  w.close(']');
  w.close('}');
  out += '\n';
  return out;
}

namespace {

std::string faults_text(const FaultFigures& f) {
  std::string hit = "no traffic before the fault (or none after it) to compare hits with";
  if (f.hit_dip && f.t95_s) {
    hit = absl::StrFormat("hit dip %.3f, ", *f.hit_dip);
    hit += *f.t95_s < 0 ? "never back to 95 %" : absl::StrFormat("back to 95 %% after %.0f s", *f.t95_s);
  }
  const auto ms = [](const std::optional<double>& value) {
    return value ? absl::StrFormat("%.0f", *value) : std::string("–");
  };
  return absl::StrFormat("  faults: %s, p99 %s → %s ms, longest stall %.0f ms, %d resumed\n", hit,
                         ms(f.p99_before_ms), ms(f.p99_peak_ms), f.stall_max_ms, f.resumed);
}

std::string losses_text(const std::vector<Loss>& losses) {
  std::string out = "  lost:";
  std::string_view between = " ";
  for (const Loss& loss : losses)
    absl::StrAppend(&out, to_absl(std::exchange(between, ", ")), loss.count, " ", loss.why);
  return out + "\n";
}

std::string queue_text(const QueueFigures& q) {
  std::string out =
      absl::StrFormat("  queue: %d waited, p50 %.0f, p99 %.0f ms", q.waited, q.wait_ms.p50, q.wait_ms.p99);
  std::string_view between = "; refused: ";
  for (const QueueFigures::Reason& reason : q.refused)
    absl::StrAppend(&out, to_absl(std::exchange(between, ", ")), reason.count, " ", to_absl(reason.name));
  return out + "\n";
}

}  // namespace

std::string table_text(std::span<const Result> results) {
  std::string out =
      absl::StrFormat("%-22s %9s %6s %7s %7s %6s %6s %9s %9s %9s %8s %7s\n", "policy", "requests", "lost",
                      "hit", "pooled", "cov", "cov5", "ttft p50", "p90", "p99 ms", "tpot ms", "good");
  for (const Result& r : results) {
    const std::string pooled = r.has_pool ? absl::StrFormat("%.4f", r.pooled_lru_hit) : "-";
    const std::string name = r.policy == "affinity" ? absl::StrCat(r.policy, " (", r.mode, ")") : r.policy;
    absl::StrAppend(
        &out, absl::StrFormat("%-22s %9d %6d %7.4f %7s %6.3f %6.3f %9.1f %9.1f %9.1f %8.2f %7.4f\n", name,
                              r.requests, r.lost, r.hit_tokens, pooled, r.work_cov, r.work_cov5,
                              r.ttft_ms.p50, r.ttft_ms.p90, r.ttft_ms.p99, r.tpot_mean_ms, r.goodput));
    if (!r.losses.empty()) absl::StrAppend(&out, losses_text(r.losses));
    if (r.queue) absl::StrAppend(&out, queue_text(*r.queue));
    if (r.has_faults) absl::StrAppend(&out, faults_text(r.faults));
  }
  return out;
}

}  // namespace troupe::sim
