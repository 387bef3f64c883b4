// One JSON block for the page's script:
// clang-format off
//   {"step_s": seconds a bucket, "level": load a heat level, "warmup_s", "slo_ttft_ms",
//    "faults": [{"at_s", "text"}],
//    "runs": [{"name", "arrived": […], "waiting": […], "hit": [… or null], "ttft_p50_ms": […],
//              "ttft_p99_ms": […], "row_names": ["n0", …], "rows": ["KLM…", …]}]}
// clang-format on
// A heat row is a string, one character a bucket (0-9A-Za-z: that many levels of 0.05 of the fleet's mean; 0:
// dead or not there; -: idle; =: idle, as the whole fleet was), because 96 rows of 240 numbers for twelve
// policies would be megabytes.

#include "sim/report/html_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/writer.h"

namespace troupe::sim {

namespace {

constexpr double kHeatLevel = 0.05;
constexpr std::string_view kLevels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// Inside <script> only "</" and "<!--" could end or change the block.
std::string escape_json(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  return json;
}

using Seconds = std::span<const SecondSeries>;

// Seconds up to the last arrival: the stragglers afterwards are not representative.
Seconds shown_seconds(const Result& r) {
  size_t count = r.seconds.size();
  while (count > 0 && r.seconds[count - 1].arrived == 0) --count;
  return Seconds(r.seconds).first(count);
}

size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

// One number a bucket of `step` seconds.
template <typename Of>
void write_buckets(JsonWriter& w, std::string_view name, const Result& r, size_t step, Of&& of) {
  w.key(name);
  w.open('[');
  const Seconds seconds = shown_seconds(r);
  for (size_t begin = 0; begin < seconds.size(); begin += step) {
    w.number_or_null(of(seconds.subspan(begin, std::min(step, seconds.size() - begin))));
  }
  w.close(']');
}

double mean_of(Seconds seconds, int32_t SecondSeries::*member) {
  double sum = 0;
  for (const SecondSeries& second : seconds) sum += second.*member;
  return sum / static_cast<double>(seconds.size());
}

void write_lines(JsonWriter& w, const Result& r, size_t step) {
  write_buckets(w, "arrived", r, step, [](Seconds s) { return mean_of(s, &SecondSeries::arrived); });
  write_buckets(w, "waiting", r, step, [](Seconds s) { return mean_of(s, &SecondSeries::waiting); });
  write_buckets(w, "hit", r, step, [](Seconds seconds) {
    double prompt = 0, hit = 0;
    for (const SecondSeries& s : seconds) {
      prompt += static_cast<double>(s.prompt_tokens);
      hit += static_cast<double>(s.hit_tokens);
    }
    return prompt > 0 ? hit / prompt : std::nan("");
  });
  write_buckets(w, "ttft_p50_ms", r, step, [](Seconds seconds) {
    double sum = 0, count = 0;
    for (const SecondSeries& s : seconds) {
      sum += static_cast<double>(s.ttft_p50_ms);
      count += s.ttft_p50_ms > 0 ? 1 : 0;
    }
    return count > 0 ? sum / count : std::nan("");
  });
  write_buckets(w, "ttft_p99_ms", r, step, [](Seconds seconds) {
    float worst = 0;
    for (const SecondSeries& s : seconds) worst = std::max(worst, s.ttft_p99_ms);
    return worst > 0 ? static_cast<double>(worst) : std::nan("");
  });
}

// Work of each row against the mean of all rows, bucket by bucket.
void write_heat(JsonWriter& w, const Result& r, size_t step) {
  const size_t nodes = r.node_series.size(), joined = std::max<size_t>(1, ceil_div(nodes, kNodeRowsMax));
  const size_t rows = ceil_div(nodes, joined), seconds = shown_seconds(r).size(),
               buckets = ceil_div(seconds, step);
  std::vector<double> work(rows * buckets), total(buckets);
  std::vector<bool> up(rows * buckets);
  for (size_t n = 0; n < nodes; ++n) {
    const std::vector<float>& series = r.node_series[n].work_per_s;
    // The last row may have fewer nodes.
    const double size = static_cast<double>(std::min(joined, nodes - n / joined * joined));
    for (size_t s = 0; s < std::min(series.size(), seconds); ++s) {
      work[n / joined * buckets + s / step] += static_cast<double>(series[s]) / size;
      total[s / step] += static_cast<double>(series[s]) / static_cast<double>(nodes);
    }
    const std::vector<bool>& alive = r.node_series[n].up;
    for (size_t s = 0; s < std::min(alive.size(), seconds); ++s) {
      if (alive[s]) up[n / joined * buckets + s / step] = true;
    }
  }
  w.key("row_names");
  w.open('[');
  for (size_t row = 0; row < rows; ++row) {
    const size_t first = row * joined, last = std::min(first + joined, nodes) - 1;
    w.text(first == last ? r.node_series[first].id : r.node_series[first].id + "–" + r.node_series[last].id);
  }
  w.close(']');
  w.key("rows");
  w.open('[');
  std::string cells(buckets, '0');
  for (size_t row = 0; row < rows; ++row) {
    for (size_t b = 0; b < buckets; ++b) {
      const double value = work[row * buckets + b], ratio = total[b] > 0 ? value / total[b] : 0;
      const auto level =
          static_cast<size_t>(std::min(ratio / kHeatLevel + 0.5, static_cast<double>(kLevels.size() - 1)));
      const char none = !up[row * buckets + b] ? '0' : total[b] > 0 ? '-' : '=';
      cells[b] = value > 0 ? kLevels[std::max<size_t>(level, 1)] : none;
    }
    w.text(cells);
  }
  w.close(']');
}

}  // namespace

std::string html_data(std::span<const Result> results, const PageFacts& facts) {
  size_t seconds = 1;
  for (const Result& r : results) seconds = std::max(seconds, shown_seconds(r).size());
  const size_t step = ceil_div(seconds, kTimeBucketsMax);
  std::string out;
  JsonWriter w(out);
  w.open('{');
  w.count("step_s", static_cast<int64_t>(step));
  w.field("level", kHeatLevel);
  w.field("warmup_s", facts.warmup_s);
  w.field("slo_ttft_ms", facts.slo_ttft_ms);
  w.key("faults");
  w.open('[');
  for (const Fault& fault : facts.faults) {
    w.open('{');
    w.field("at_s", fault.at_s);
    w.key("text");
    w.text(fault_text(fault));
    w.close('}');
  }
  w.close(']');
  w.key("runs");
  w.open('[');
  for (const Result& r : results) {
    w.open('{');
    w.key("name");
    w.text(run_name(r));
    write_lines(w, r, step);
    write_heat(w, r, step);
    w.close('}');
  }
  w.close(']');
  w.close('}');
  return escape_json(std::move(out));
}

std::string run_name(const Result& r) {
  return r.policy == "affinity" ? absl::StrCat(r.policy, " (", r.mode, ")") : r.policy;
}

std::string fault_text(const Fault& fault) {
  std::string what(fault_name(fault.kind));
  std::replace(what.begin(), what.end(), '_', ' ');
  const bool of_gateway = fault.kind == Fault::Kind::kRestartGateway;
  absl::StrAppend(&what,
                  fault.kind == Fault::Kind::kJoin ? ": nodes that join: "
                  : of_gateway                     ? " "
                                                   : ": node ",
                  fault.target);
  if (fault.kind == Fault::Kind::kSlow) absl::StrAppend(&what, ", ", fault.factor, " times as slow");
  if (fault.for_s > 0) absl::StrAppend(&what, ", for ", fault.for_s, " s");
  return what;
}

}  // namespace troupe::sim
