#include "worker/sim_device/fault_injector.h"

#include <algorithm>
#include <cmath>

#include "common/json/json.h"
#include "worker/model/sampler.h"

namespace troupe {

namespace {

// A dropped stream ends by its 16th write at the latest: most answers are longer.
constexpr double kDropWritesMax = 16;

ApiError refused(std::string_view key, std::string_view wanted) {
  return ApiError::bad_field(key, "'" + std::string(key) + "' must be " + std::string(wanted));
}

struct NumberField {
  std::string_view key;
  double SimFaultSettings::*target;
  double min, max;
  std::string_view wanted;
};
constexpr NumberField kNumbers[] = {
    {"stall_s", &SimFaultSettings::stall_s, 0, 600, "a number of seconds from 0 to 600"},
    {"slow_factor", &SimFaultSettings::slow_factor, 1, 1000, "a number from 1 to 1000"},
    {"drop_rate", &SimFaultSettings::drop_rate, 0, 1, "a number from 0 to 1"},
    {"error_rate", &SimFaultSettings::error_rate, 0, 1, "a number from 0 to 1"},
};
struct IntegerField {
  std::string_view key;
  int64_t SimFaultSettings::*target;
  int64_t min, max;
  std::string_view wanted;
};
constexpr IntegerField kIntegers[] = {
    {"error_status", &SimFaultSettings::error_status, 500, 599, "an HTTP status from 500 to 599"},
    {"seed", &SimFaultSettings::seed, 0, INT64_MAX, "an integer >= 0"},
};

// Takes one field; an error with an empty message means success.
ApiError take_field(std::string_view key, const bj::value& value, SimFaultSettings& settings) {
  ApiError none;
  for (const NumberField& field : kNumbers) {
    if (field.key != key) continue;
    if (!value.is_number()) return refused(key, field.wanted);
    const double number = value.to_number<double>();
    if (number < field.min || number > field.max) return refused(key, field.wanted);
    settings.*field.target = number;
    return none;
  }
  for (const IntegerField& field : kIntegers) {
    if (field.key != key) continue;
    if (!value.is_int64()) return refused(key, field.wanted);
    const int64_t number = value.get_int64();
    if (number < field.min || number > field.max) return refused(key, field.wanted);
    settings.*field.target = number;
    return none;
  }
  if (key != "refuse") {
    return refused(key, "one of stall_s, slow_factor, drop_rate, error_rate, error_status, refuse, seed");
  }
  if (!value.is_bool()) return refused(key, "true or false");
  settings.refuse = value.get_bool();
  return none;
}

Counter& fault_counter(Metrics& metrics, const std::string& kind) {
  return metrics.counter("troupe_sim_faults_total", "Faults done on request, by kind", {{"kind", kind}});
}

}  // namespace

std::string SimFaultSettings::to_json() const {
  return troupe::to_json(bj::value{{"stall_s", stall_s},
                                   {"slow_factor", slow_factor},
                                   {"drop_rate", drop_rate},
                                   {"error_rate", error_rate},
                                   {"error_status", error_status},
                                   {"refuse", refuse},
                                   {"seed", seed}});
}

ApiResult<SimFaultSettings> parse_sim_faults(std::string_view body) {
  const auto root = parse_json(body);
  if (!root.ok())
    return ApiError::bad_field("", "the body is no JSON: " + std::string(root.status().message()));
  if (!root->is_object())
    return ApiError::bad_field("", "the body must be a JSON object; {} ends all faults");
  SimFaultSettings settings;
  for (const auto& field : root->get_object()) {
    ApiError error = take_field({field.key().data(), field.key().size()}, field.value(), settings);
    if (!error.message.empty()) return error;
  }
  return settings;
}

SimFaults::SimFaults(Metrics& metrics)
    : errors_(fault_counter(metrics, "error")), drops_(fault_counter(metrics, "drop")) {}

void SimFaults::set(const SimFaultSettings& settings, TimePoint now) {
  {
    const MutexLock lock(mutex_);
    settings_ = settings;
    stalled_until_ = now + std::chrono::nanoseconds(std::llround(settings.stall_s * 1e9));
    request_count_ = 0;
  }
  changed_.notify_all();
}

SimFaultSettings SimFaults::settings() const {
  const MutexLock lock(mutex_);
  return settings_;
}

bool SimFaults::refuses() const {
  const MutexLock lock(mutex_);
  return settings_.refuse;
}

SimFaults::Fate SimFaults::next_fate() {
  const MutexLock lock(mutex_);
  const auto draw = [seed = static_cast<uint64_t>(settings_.seed), position = 3 * request_count_++](
                        uint64_t i) { return counter_uniform(seed, position + i); };
  Fate fate;
  if (settings_.refuse) {
    fate.error_status = 503;
  } else if (draw(0) < settings_.error_rate) {
    fate.error_status = static_cast<int>(settings_.error_status);
  } else if (draw(1) < settings_.drop_rate) {
    fate.dropped_at_write = 1 + static_cast<int>(draw(2) * kDropWritesMax);
  }
  if (fate.error_status != 0) errors_.Increment();
  if (fate.dropped_at_write != 0) drops_.Increment();
  return fate;
}

TimePoint SimFaults::step_end(TimePoint begin, Duration duration) const {
  const double ns = static_cast<double>(duration.count()) * settings_.slow_factor;
  return std::max(begin + Duration(std::llround(ns)), stalled_until_);
}

TimePoint SimFaults::wait_step_end(TimePoint begin, Duration duration) {
  const MutexLock lock(mutex_);
  // A change of the settings during the wait applies to this step, too.
  TimePoint end = step_end(begin, duration);
  while (clock_.now() < end) {
    changed_.wait_until(mutex_, end);
    end = step_end(begin, duration);
  }
  return end;
}

}  // namespace troupe
