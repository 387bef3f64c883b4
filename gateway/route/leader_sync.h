#pragma once

// A gateway's exchange with the store that all of them share (etcd): one question after the other, and what
// follows from the answers. Pure: the caller asks the store, with whatever delays, losses and repetitions,
// and brings back the answer; a simulation needs no store.
//
// - a round: keep the lease → put the own loads → read who is there → give the leader's key back, or make it,
//   where that is due → write the next table, where this gateway leads
// - meanwhile: the store's watch reports the leader's key and the table, at any time between two questions
//
// A question may have been done though no answer came, late, or twice. So everything that must not happen
// twice, or after its time, states in the same step what the store has to look like for it (StoreCommand's
// compares); where the store differs, it answers with its state instead.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/route/fleet/gateway_shard.h"
#include "gateway/route/placement/shared_table.h"
#include "gateway/route/router.h"

namespace troupe::route {

struct StoreKey {
  std::string value;
  int64_t created = 0, modified = 0;  // revisions of the store
  bool has_lease = true;              // else it outlives its gateway
};

struct StoreCommand {
  enum class Kind : uint8_t {
    kNothing,    // the round is over
    kKeepLease,  // renew the lease, or get one
    kPutLoads,   // `value` as this gateway's loads, under `lease`
    kObserve,    // read all gateways' loads (without `values` names only), the leader's key, the table's key
    kLook,       // read the leader's key and the table
    kCampaign,   // make the leader's key with `value`, under `lease`
    kResign,     // delete the leader's key: this gateway's own, or one without a lease
    kWrite,      // `value` as the table
  };
  Kind kind = Kind::kNothing;
  // For the last three kinds: done only where the key was last made, or changed, at this revision (0: it must
  // not exist), else answered with both keys.
  std::optional<int64_t> leader_created, table_modified;
  int64_t lease = 0;
  std::string value;
  bool values = false;
};

struct StoreAnswer {
  int64_t revision = 0;
  bool done = false;  // else the compares did not hold
  // Current state, for kObserve, kLook, and what was not done; none: the key does not exist.
  std::optional<StoreKey> leader, table;
  std::vector<std::pair<std::string, std::string>> loads;  // kObserve: gateways' names and loads
};

// Outcome of an answer, for the log and the metrics.
struct StoreUpdate {
  bool written = false, refused = false, resigned = false;
  bool removed_leader = false;  // a leader's key without a lease, which would have stayed for ever
  bool adopted = false;
  bool other_kind = false;  // a table of a kind that this gateway ignores (gateways.h)
  Status table;             // malformed
  std::vector<std::pair<std::string, Status>> loads;  // malformed, by gateway
};

// Not thread-safe.
class LeaderSync {
 public:
  struct Options {
    Duration plan_tick = std::chrono::seconds(4);
    int64_t gateways = 1;  // least number that shares the fleet, however many are present
  };
  // REQUIRES: `router` outlives it and has RouterOptions::shared_table.
  LeaderSync(const Options& options, Router& router);

  // The store's state, all as of one revision, asked for when shared().revision() was `asked`; null: the key
  // does not exist.
  StoreUpdate saw_all(int64_t revision, int64_t asked, const StoreKey* leader, const StoreKey* table);
  // A key was changed or read.
  void saw_leader(const StoreKey* key, int64_t revision);
  StoreUpdate saw_table(const StoreKey* key, int64_t revision);

  void begin() { stage_ = Stage::kLease; }
  // The next question. REQUIRES: the last one was answered by one of the next three; or begin().
  StoreCommand next(TimePoint now);
  // kKeepLease: the lease holds until then by the local clock, counted from before it was asked for.
  void lease_kept(int64_t lease, TimePoint until);
  // Any other kind.
  StoreUpdate answered(const StoreAnswer& answer, TimePoint now);
  // The outcome of the question is unknown. The round is over.
  void failed();

  // A round now would be of use, rather than in a second or two.
  bool wants_round(TimePoint now) const {
    return shared_.may_campaign(now) || shared_.may_remove_leader(now);
  }
  const SharedTable& shared() const { return shared_; }
  // This gateway's place among those seen in the last round.
  const GatewayShard& place() const { return place_; }

 private:
  enum class Stage : uint8_t { kLease, kLoads, kObserve, kLook, kLead, kWrite, kOver };
  std::optional<StoreCommand> loads_ask();
  std::optional<StoreCommand> lead_ask(TimePoint now) const;
  std::optional<StoreCommand> write_ask(TimePoint now);
  void observe(const StoreAnswer& answer, StoreUpdate& update, TimePoint now);
  StoreUpdate look(const StoreAnswer& answer);
  StoreUpdate settle(const StoreAnswer& answer);

  const Options options_;
  Router& router_;
  SharedTable shared_;
  Stage stage_ = Stage::kOver;
  StoreCommand asked_;
  int64_t asked_at_ = 0;  // revision known when it was asked
  bool looks_ = false;    // in this round
  int64_t lease_ = 0;
  bool leads_or_may_ = false;  // in this round: then all loads are of use
  bool behind_ = false;        // the store's table is older than the one in force here
  TimePoint planned_at_{};
  GatewayShard place_;
  TimePoint others_return_until_{};  // the gateways present before count as present until then
  // State of the loads put last; lease 0: to be put.
  int64_t loads_lease_ = 0;
  uint64_t loads_sample_ = 0;
  uint32_t loads_nodes_ = 0;
};

}  // namespace troupe::route
