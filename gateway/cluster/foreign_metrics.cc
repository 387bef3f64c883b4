#include "gateway/cluster/foreign_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe {
namespace {

constexpr double kMetricMax = 1e15;  // larger figures are no counts of tokens
constexpr int64_t kBlockTokensMax = 65'536;

struct MetricSums {
  double running = 0, queued = 0, computed = 0, cached = 0;
  double kv_tokens = 0, usage = 0;
  int64_t block_tokens = 0;
  int usages = 0;
  bool any = false;
};

// A sample: `name{label="…",…} value`.
struct MetricSample {
  std::string_view name, labels;
  double value = 0;

  // A label's value as a whole number; 0: it has none.
  int64_t label(std::string_view wanted) const {
    size_t at = 0;
    while ((at = labels.find(wanted, at)) != std::string_view::npos) {
      const bool begins = at == 0 || labels[at - 1] == ',' || labels[at - 1] == '{';
      at += wanted.size();
      if (!begins || labels.substr(at, 2) != "=\"") continue;
      int64_t number = 0;
      std::from_chars(labels.data() + at + 2, labels.data() + labels.size(), number);
      return std::max<int64_t>(number, 0);
    }
    return 0;
  }
};

// Where the labels' brace closes: one in a label's text does not count, nor those of an exemplar behind the
// value.
size_t end_of_labels(std::string_view line, size_t open) {
  bool in_text = false;
  for (size_t i = open + 1; i < line.size(); ++i) {
    if (in_text && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      in_text = !in_text;
    } else if (line[i] == '}' && !in_text) {
      return i;
    }
  }
  return std::string_view::npos;
}

std::optional<MetricSample> sample_of(std::string_view line) {
  MetricSample sample;
  const size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos) return std::nullopt;
  sample.name = line.substr(0, name_end);
  size_t value_at = name_end;
  if (line[name_end] == '{') {
    const size_t close = end_of_labels(line, name_end);
    if (close == std::string_view::npos) return std::nullopt;
    sample.labels = line.substr(name_end, close - name_end);
    value_at = close + 1;
  }
  while (value_at < line.size() && line[value_at] == ' ') value_at += 1;
  const auto [end, error] = std::from_chars(line.data() + value_at, line.data() + line.size(), sample.value);
  const bool is_figure = error == std::errc() && std::isfinite(sample.value) && sample.value >= 0;
  return is_figure && sample.value <= kMetricMax ? std::optional(sample) : std::nullopt;
}

struct SummedMetric {
  std::string_view name;
  double MetricSums::*sum;
};
constexpr SummedMetric kSummedMetrics[] = {
    {"vllm:num_requests_running", &MetricSums::running},
    {"vllm:num_requests_waiting", &MetricSums::queued},
    {"vllm:prompt_tokens_total", &MetricSums::computed},
    {"vllm:generation_tokens_total", &MetricSums::computed},
    {"vllm:prefix_cache_hits_total", &MetricSums::cached},
    {"sglang:num_running_reqs", &MetricSums::running},
    {"sglang:num_queue_reqs", &MetricSums::queued},
    {"sglang:prompt_tokens_total", &MetricSums::computed},
    {"sglang:generation_tokens_total", &MetricSums::computed},
    {"sglang:cached_tokens_total", &MetricSums::cached},
    {"sglang:max_total_num_tokens", &MetricSums::kv_tokens},
    {"llamacpp:requests_processing", &MetricSums::running},
    {"llamacpp:requests_deferred", &MetricSums::queued},
    {"llamacpp:prompt_tokens_total", &MetricSums::computed},
    {"llamacpp:tokens_predicted_total", &MetricSums::computed},
};
constexpr std::string_view kKvUsages[] = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                                          "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"};

void add_sample(const MetricSample& sample, MetricSums& sums) {
  for (const SummedMetric& metric : kSummedMetrics) {
    if (metric.name != sample.name) continue;
    sums.*metric.sum = std::min(sums.*metric.sum + sample.value, kMetricMax);
    sums.any = true;
  }
  if (std::find(std::begin(kKvUsages), std::end(kKvUsages), sample.name) != std::end(kKvUsages)) {
    sums.usage += std::min(sample.value, 1.0);
    sums.usages += 1;
    sums.any = true;
  }
  if (sample.name == "vllm:cache_config_info") {
    sums.block_tokens = std::min(sample.label("block_size"), kBlockTokensMax);
    sums.kv_tokens +=
        static_cast<double>(sample.label("num_gpu_blocks")) * static_cast<double>(sums.block_tokens);
  }
}

}  // namespace

std::optional<route::NodeReport> report_of_metrics(std::string_view text) {
  MetricSums sums;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool known =
        line.starts_with("vllm:") || line.starts_with("sglang:") || line.starts_with("llamacpp:");
    if (!known) continue;
    if (const auto sample = sample_of(line)) add_sample(*sample, sums);
  }
  if (!sums.any) return std::nullopt;
  route::NodeReport report;
  report.running = static_cast<int64_t>(sums.running);
  report.queued = static_cast<int64_t>(sums.queued);
  report.work_tokens_total = static_cast<int64_t>(std::max(sums.computed - sums.cached, 0.0));
  report.block_tokens = sums.block_tokens;
  sums.kv_tokens = std::min(sums.kv_tokens, kMetricMax);
  const double usage = sums.usages > 0 ? std::min(sums.usage / sums.usages, 1.0) : 0;
  report.kv_tokens_total = static_cast<int64_t>(sums.kv_tokens);
  report.kv_tokens_free = static_cast<int64_t>(sums.kv_tokens * (1 - usage));
  return report;
}

}  // namespace troupe
