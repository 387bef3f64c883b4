#pragma once

// GET /v1/residency: the contents of the engine's prefix cache for any number of subscribers, as server-sent
// events (residency.h). Each stream begins with a snapshot; changes follow, gathered for at most a hundredth
// of a second. A change is written once, into a log of bounded length that all subscribers read at their own
// pace; a subscriber that falls behind the log is cut off and reconnects for a new snapshot. The engine has
// one reader, whatever the number of subscribers, and never waits for it (residency_publisher.h).
//
// All calls on the executor's thread.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/api/residency.h"
#include "common/core/metrics.h"
#include "common/net/task.h"
#include "common/net/timer.h"
#include "worker/engine/residency_publisher.h"
#include "worker/http/http_call.h"

namespace troupe {

class ResidencyStream {
 public:
  struct Options {
    size_t subscribers_max = 64;
    size_t log_bytes_max = 1u << 20;
    Duration gather = std::chrono::milliseconds(10);
    Duration heartbeat = std::chrono::seconds(2);  // a comment, which reveals a hung worker by its absence
  };
  // `residency_publisher` outlives this object; this object outlives the engine's calls queued on `executor`.
  ResidencyStream(Executor executor, ResidencyPublisher& residency_publisher, Metrics& metrics,
                  const Options& options);

  // Begins to listen. Called once, before any serve().
  void start();
  // Ends every stream in good order, and refuses new ones.
  void close();
  // Serves one subscriber until it disconnects, falls behind, or close() is called.
  Task<void> serve(HttpCall& call);

 private:
  struct Subscriber {
    explicit Subscriber(Executor executor) : timer(executor) {}
    Timer timer;            // armed for the heartbeat; cancelled when there is something to send
    uint64_t sent_seq = 0;  // last change sent to it
  };
  class Subscription;
  using Key = std::pair<HolderKind, Hash128>;

  void on_news();
  void pull();
  void append(const Resident& change);
  bool cut_off(const Subscriber& subscriber) const;
  void collect(Subscriber& subscriber, std::string& bytes) const;
  std::string snapshot() const;
  Task<void> wait(Subscriber& subscriber);

  Executor executor_;
  ResidencyPublisher& residency_publisher_;
  const Options options_;
  Gauge& subscribers_gauge_;
  Counter& changes_total_;
  Counter& cut_off_total_;

  Timer gather_timer_;
  TimePoint pulled_at_{};
  struct Held {
    int64_t tokens = 0;
    bool pinned = false;
  };
  absl::btree_map<Key, Held> held_;  // as of seq_
  uint64_t seq_ = 0;
  std::deque<std::string> log_;  // events of the last changes, that of seq_ at the back
  size_t log_bytes_ = 0;
  std::vector<Resident> changes_;
  std::vector<Subscriber*> subscribers_;
  bool closed_ = false;
};

}  // namespace troupe
