#include "common/core/metrics.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace troupe {

const std::vector<double> kTtftBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const std::vector<double> kInterTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                                0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const std::vector<double> kRequestLatencyBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                                    30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

// A merging registry returns the same family for the same name, and a family the same metric for the same
// labels, each under its own lock; so no cache of ours is needed.
Metrics::Metrics()
    : registry_(std::make_unique<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)) {}

Metrics::~Metrics() = default;

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help,
                              const std::vector<double>& buckets, const Labels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels, buckets);
}

void Metrics::remove(const std::string& name, Gauge& gauge) {
  prometheus::BuildGauge().Name(name).Register(*registry_).Remove(&gauge);
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace troupe
