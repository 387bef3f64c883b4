#pragma once

// Counters, gauges and histograms in Prometheus' text format, over prometheus-cpp. The registry is owned by
// main and passed down. Handles stay valid as long as the registry. All updates are thread-safe and lock-free
// or nearly so (prometheus-cpp's own); creating a handle takes a lock, so create them once.

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Registry;
}

namespace troupe {

using Labels = std::map<std::string, std::string>;
using Counter = prometheus::Counter;
using Gauge = prometheus::Gauge;
using Histogram = prometheus::Histogram;

// vLLM v1's buckets, so that existing dashboards line up. Seconds.
extern const std::vector<double> kTtftBuckets;
extern const std::vector<double> kInterTokenBuckets;
extern const std::vector<double> kRequestLatencyBuckets;

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The same (name, labels) returns the same handle.
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const std::vector<double>& buckets,
                       const Labels& labels = {});

  // Stops exporting `gauge` and invalidates the handle. REQUIRES: `gauge` is of this name.
  void remove(const std::string& name, Gauge& gauge);

  // Returns the content of GET /metrics (text/plain; version=0.0.4).
  std::string text() const;

 private:
  std::unique_ptr<prometheus::Registry> registry_;
};

}  // namespace troupe
