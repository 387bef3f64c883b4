#pragma once

// --record FILE: the traffic as a trace, written by a thread of its own. The gateway's thread hands its facts
// over and goes on; with a slow or full disk, lines are dropped and counted; no request waits.
//
//   proxy ── arrival, outcome ──▶ queue (bounded) ──▶ TraceWriter ──▶ file
//
// The file is appended to (timestamps go on), and only its owner may read it. Without a secret that the
// fleet's gateways share each run has a salt of its own, so ids of another run or gateway mean other text;
// every line names its salt, so that the two are not confused.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/telemetry/append_log.h"
#include "gateway/telemetry/trace_writer.h"

namespace troupe {

// Gateways with the same secret write records that can be joined: equal text has equal hashes.
Hash128 record_salt(std::string_view secret);

class TrafficRecorder {
 public:
  static constexpr size_t kQueueBytesMax = size_t{32} << 20;
  struct Parts {
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  // Errors name the path. `salt`: for all hashes but the sets' names.
  static StatusOr<std::unique_ptr<TrafficRecorder>> open(const std::string& path, const Parts& parts,
                                                         Hash128 salt);
  // Writes pending lines, for at most two seconds.
  ~TrafficRecorder();
  TrafficRecorder(const TrafficRecorder&) = delete;
  TrafficRecorder& operator=(const TrafficRecorder&) = delete;

  Hash128 salt() const { return salt_; }
  TimePoint now() const { return clock_.now(); }
  // Both return at once. Fills in `arrival.number` and `unix_us`; returns the number, or 0 if it was dropped.
  uint64_t arrived(TrafficArrival arrival, TimePoint at);
  void ended(uint64_t number, TrafficOutcome outcome);

 private:
  struct End {
    uint64_t number;
    TrafficOutcome outcome;
  };
  using Event = std::variant<TrafficArrival, End>;

  TrafficRecorder(int fd, const std::string& path, const Parts& parts, Hash128 salt);
  bool push(Event event, size_t bytes);
  void run();
  bool wait(std::vector<Event>& events);
  bool may_go_on();

  const Clock& clock_;
  const Hash128 salt_;
  const int64_t unix_us_at_zero_;  // of `clock_`
  Counter& dropped_full_;
  uint64_t last_number_ = 0;

  Mutex mutex_;
  CondVar wake_;
  std::vector<Event> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint stop_by_ ABSL_GUARDED_BY(mutex_){};

  AppendLog file_;      // used by the writer
  std::thread writer_;  // last: it uses the members above
};

// One request's entry: its destruction ends the request.
class TrafficEntry {
 public:
  TrafficEntry(TrafficRecorder& record, TrafficArrival arrival, TimePoint started)
      : record_(record), started_(started), number_(record.arrived(std::move(arrival), started)) {
    outcome.status = kClientGone;
  }
  ~TrafficEntry() {
    outcome.duration_us = since_start_us();
    record_.ended(number_, std::move(outcome));
  }
  TrafficEntry(const TrafficEntry&) = delete;
  TrafficEntry& operator=(const TrafficEntry&) = delete;

  void first_byte() { outcome.first_byte_us = since_start_us(); }
  TrafficOutcome outcome;

 private:
  static constexpr int kClientGone = 499;  // until a status is set
  int64_t since_start_us() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(record_.now() - started_).count();
  }
  TrafficRecorder& record_;
  const TimePoint started_;
  const uint64_t number_;
};

}  // namespace troupe
