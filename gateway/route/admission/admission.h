#pragma once

// Admission of requests to the workers: each is admitted now, waits in the queue, or is refused until later.
//
// Workers that are full queue in the order of arrival, so one popular persona would hold up all others there.
// The queue is therefore kept here, in front of them, where it can be fair (fair_queue.h) and where a request
// whose client has gone costs nothing. A request is admitted while the pool (the workers of its model) has
// room and neither the gateway, its API key nor its persona is at a limit. A limit in tokens holds back
// requests that come once it is reached; the last one admitted may exceed it by its own cost, else large
// requests would wait for ever behind small ones. The pool's room treats a request of several answers
// likewise.
//
// A request is inside from arrive() or advance() on until leave(), however often it is sent to workers
// meanwhile. Time is an argument: sans-io, deterministic. Not thread-safe.

#include <absl/container/flat_hash_map.h>
#include <absl/container/node_hash_map.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/admission/drain_rate.h"
#include "gateway/route/admission/fair_queue.h"

namespace troupe {
class SettingsSchema;
}

namespace troupe::route {

struct AdmissionLimits {  // at the workers at once; 0: no limit
  int64_t requests = 0;
  int64_t tokens = 0;
};

struct AdmissionOptions {
  AdmissionLimits total, persona;  // of all requests, and of each persona
  size_t queue_max = 1024;         // waiting requests of each pool
  Duration wait_max = std::chrono::seconds(60);
  bool fair = true;  // false: in order of arrival
  // Flows remembered because they have had more than others and now rest; the least recently used is
  // forgotten.
  size_t flows_max = 16'384;
};
// Describes admission.queue, .fair and the limits. `options` must outlive the schema.
void describe(SettingsSchema& schema, AdmissionOptions& options);

// Rights of an API key.
struct AdmissionKey {
  Hash128 id;         // zero: any client
  double weight = 1;  // above 0
  AdmissionLimits limits;
  int64_t waiting_max = 0;  // 0: no limit
};

struct AdmissionRequest {
  std::string_view pool;  // its model
  int64_t pool_room = 0;  // concurrent answers that fill the pool
  int64_t answers = 1;    // requested answers (n): places in a worker's batch
  AdmissionKey key;
  Hash128 persona;  // zero: none, and no limit of one
  int32_t priority = 0;
  int64_t tokens = 1;         // to compute, estimated
  int64_t prompt_tokens = 0;  // of them, those of the prompt: many times faster than the answer's
  TimePoint deadline{};
};

enum class AdmissionOutcome : uint8_t {
  kAdmitted,
  kWaiting,
  kQueueFull,     // and other requests have a better claim to a place in it
  kKeyQueueFull,  // the key's waiting_max is reached
  kWouldBeLate,   // at the queue's drain rate, or twice the pool's service rate, its turn comes after its
                  // deadline
  kPushedOut,     // waited, and made room for a request of a flow with fewer waiting
  kTimedOut,      // waited for wait_max
  kDeadline,      // waited until its own deadline
  kDrained,       // still waiting when the gateway's drain ended
};
inline constexpr size_t kAdmissionOutcomeCount = 9;
std::string_view admission_outcome_name(AdmissionOutcome outcome);

class Admission {
 public:
  explicit Admission(const AdmissionOptions& options);

  struct Answer {
    AdmissionOutcome outcome = AdmissionOutcome::kAdmitted;
    uint64_t ticket = 0;  // for kAdmitted and kWaiting
    Duration wait{};      // until its turn, or until asking again makes sense; a guess, in whole seconds
  };
  Answer arrive(const AdmissionRequest& request, TimePoint now);
  // The answer arrive() would give.
  Answer preview(const AdmissionRequest& request, TimePoint now) const { return judge(request, now); }
  // Ends the request, or its waiting: its ticket is void. `tokens`: its actual cost, where known.
  void leave(uint64_t ticket, std::optional<int64_t> tokens, TimePoint now);

  // Outcome of a waiting request, reported once; not reported for one that left.
  struct Event {
    uint64_t ticket = 0;
    AdmissionOutcome outcome = AdmissionOutcome::kAdmitted;
    Duration waited{};
    Duration wait{};  // as Answer's
  };
  // Call it after leave(), arrive() and pool_room(), and at next_deadline().
  std::vector<Event> advance(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  void pool_room(std::string_view pool, int64_t requests);
  // Pools with waiting requests.
  std::vector<std::string> waiting_pools() const;
  // Replaces the limits (`flows_max` stays). Requests that are inside or wait stay.
  void change(const AdmissionOptions& options);
  // Stops arrivals; requests still waiting at `until` end as kDrained.
  void drain(TimePoint until);

  size_t waiting() const { return waiting_; }
  size_t waiting(int32_t priority) const;
  int64_t running() const { return inside_.requests; }
  int64_t running_tokens() const { return inside_.tokens; }
  size_t flows() const;
  size_t flows_remembered() const { return memory_.size(); }
  bool consistent() const;  // for tests: checks every entry

 private:
  struct Count {  // at the workers
    int64_t requests = 0;
    int64_t tokens = 0;
    void add(int64_t count, int64_t of_tokens);
    bool below(const AdmissionLimits& limits) const;
  };
  struct Key {
    AdmissionKey terms;
    FairQueue::Share share;
    Count inside;
    int64_t waiting = 0;
  };
  struct Persona {
    Hash128 id;
    Count inside;
    int64_t entries = 0;
  };
  struct Pool {
    Pool(std::string_view model, const Hash128& hashed, LruMap<double>& memory, bool fair, double base);
    std::string name;
    Hash128 hash;
    FairQueue queue;
    DrainRate drain;
    ServiceRate service;
    int64_t room = 0;
    int64_t running = 0;  // answers
    int64_t entries = 0;
    int64_t waiting_answer_tokens = 0;
  };
  struct Entry {
    Pool* pool = nullptr;
    Key* key = nullptr;
    Persona* persona = nullptr;  // null: none
    FairQueue::Flow* flow = nullptr;
    std::list<FairQueue::Item>::iterator item;  // while it waits
    bool waits = false;
    int64_t tokens = 0;
    int64_t answer_tokens = 0;  // of them
    int64_t answers = 1;
    TimePoint arrived{}, admitted{};
    TimePoint deadline{};  // of its waiting
    AdmissionOutcome late = AdmissionOutcome::kDeadline;
  };

  bool may_enter(const Pool& pool, const Key* key, const Persona* persona) const;
  Answer judge(const AdmissionRequest& request, TimePoint now) const;
  Entry& make_entry(const AdmissionRequest& request, uint64_t ticket, TimePoint now);
  void enqueue(uint64_t ticket, Entry& entry, TimePoint now);
  void push_out(const Entry& entry, TimePoint now);
  void count_in(Entry& entry, TimePoint now);
  void count_waiting(Entry& entry, int change);
  void erase(uint64_t ticket);
  void emit(uint64_t ticket, AdmissionOutcome outcome, TimePoint now);
  void send_away(uint64_t ticket, AdmissionOutcome outcome, TimePoint now);
  void expire(TimePoint now);
  void fill(TimePoint now);
  bool let_next_in(Pool& pool, TimePoint now);
  static std::optional<Duration> wait_of(const Pool& pool, const Hash128& flow, int32_t priority,
                                         double per_token, int64_t answer_tokens);
  static Duration come_back(const Pool& pool, const std::optional<Duration>& wait);

  AdmissionOptions options_;
  LruMap<double> memory_;
  absl::flat_hash_map<Hash128, std::unique_ptr<Pool>> pools_;  // by the hash of the pool's name
  absl::flat_hash_map<Hash128, std::unique_ptr<Key>> keys_;
  absl::flat_hash_map<Hash128, std::unique_ptr<Persona>> personas_;
  absl::node_hash_map<uint64_t, Entry> entries_;
  std::set<std::pair<TimePoint, uint64_t>> deadlines_;  // of the waiting requests
  std::vector<Event> events_;
  uint64_t tickets_ = 0;
  double base_ = 0;  // virtual time reached by the pools erased so far
  size_t waiting_ = 0;
  Count inside_;
};

}  // namespace troupe::route
