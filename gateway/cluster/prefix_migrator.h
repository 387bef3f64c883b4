#pragma once

// Computes sets' prefixes at the workers that are going to get their requests: when a worker drains, and when
// one starts with an empty cache (route/placement/handover.h decides which and when; texts come from requests
// that passed). Sets without a kept text, or for workers that cannot compute ahead, move at once.
//
// The conversations of a worker that drains move before its sets, last used first, by the ids that it lists
// for them (common/api/conversations.h): each is computed where its set is, or is going to be, and goes on
// there.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/api/conversations.h"
#include "common/core/log.h"
#include "common/core/metrics.h"
#include "common/core/time.h"
#include "common/json/json.h"
#include "common/net/task_group.h"
#include "common/net/wakeable_timer.h"
#include "gateway/cluster/fleet.h"
#include "gateway/cluster/prefix_text_cache.h"

namespace troupe {

class SettingsSchema;

struct PrefixMigratorOptions {
  bool enabled = true;
  Duration deadline = std::chrono::seconds(20);   // of one worker's sets; then they move all the same
  Duration tick = std::chrono::milliseconds(20);  // while something is on its way
};
// Describes handover.deadline_secs. `options` must outlive the schema.
void describe(SettingsSchema& schema, PrefixMigratorOptions& options);

class PrefixMigrator {
 public:
  struct Parts {
    Executor executor;
    Fleet& fleet;
    route::Router& router;
    const PrefixTextCache& texts;
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  PrefixMigrator(const PrefixMigratorOptions& options, const Parts& parts);
  ~PrefixMigrator();
  PrefixMigrator(const PrefixMigrator&) = delete;
  PrefixMigrator& operator=(const PrefixMigrator&) = delete;

  // One endless task, and one a set on its way, in `group`: cancel the group to stop them.
  void start(TaskGroup& group);
  void change(Duration deadline) { options_.deadline = deadline; }

 private:
  class Moving;
  Task<void> run(TaskGroup& group);
  void leave(route::NodeIndex node, TimePoint until);
  void join(route::NodeIndex node);
  void begin(route::Handover::Move move, TaskGroup& group);
  Task<void> compute(route::Handover::Move move, PrefixTextCache::Text text);
  void end_leaving();
  void count(const bj::object& answer);
  // conversation_migration.cc
  void hold_for_conversations(route::NodeIndex node, TimePoint now, TimePoint by);
  struct Leaving;
  class Carrier;
  Task<void> ask_for_conversations(std::shared_ptr<Leaving> leaving, TaskGroup& group);
  Task<void> carry_conversations(std::unique_ptr<Carrier> carrier);
  Task<void> carry(const Leaving& leaving, const CachedConversation& conversation);

  PrefixMigratorOptions options_;
  WakeableTimer look_again_;
  Fleet& fleet_;
  route::Router& router_;
  const PrefixTextCache& texts_;
  const Clock& clock_;
  const Logger& log_;
  Gauge& texts_kept_;
  Gauge& text_bytes_;
  Counter& computed_tokens_;
  Counter& cached_tokens_;
  Counter& failed_;
  Counter& conversations_;
  std::vector<std::shared_ptr<Leaving>> to_ask_;  // for their conversations
};

}  // namespace troupe
