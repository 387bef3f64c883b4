#include "worker/schedule/scheduler_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/core/check.h"

namespace troupe {

namespace {

// The most sets whose work is reported: every gateway reads the load report every second.
constexpr int32_t kSetsReportedMax = 4096;

BlockTables::Options table_options(const SchedulerConfig& config) {
  return {config.block_size, config.block_count, config.enable_prefix_caching, config.simulation.name_blocks,
          config.batching != Batching::kStatic};
}

}  // namespace

SchedulerState::SchedulerState(const SchedulerConfig& c)
    : config(c),
      tables(table_options(c)),
      counted(c.block_size, &tables),
      queues(&config, &tables, &counted),
      pins(&config, &tables, &queues),
      lengths(c.max_sets),
      set_work(c.simulation.skip_set_work ? 0 : std::min(c.max_sets, kSetsReportedMax)) {}

SchedulerState::Remains SchedulerState::end(ScheduledRequest& request, bool complete) {
  TROUPE_CHECK(!request.is_companion, "a companion ends with its request");
  std::unique_ptr<Remains> companion;
  if (request.partner != nullptr) companion = std::make_unique<Remains>(end_one(*request.partner, complete));
  Remains remains = end_one(request, complete);
  remains.companion = std::move(companion);
  return remains;
}

SchedulerState::Remains SchedulerState::end_one(ScheduledRequest& request, bool complete) {
  queues.leave(request);
  // Its memory was needed for so long, whatever ended it. A request in the background answers nothing.
  const int32_t emitted_count = request.emitted_count();
  const bool answers = !request.in_background() && !request.is_companion;
  if (emitted_count > 0 && answers) lengths.record(request.spec.set, emitted_count);
  tables.release(request);
  if (complete && !request.spec.pin.is_zero()) tables.pin(request);
  pins.drop(request);
  Remains remains{std::move(request.block_hashes), std::move(request.ids), request.spec.salt,
                  request.spec.pin};
  queues.erase(request);
  return remains;
}

void SchedulerState::rewind(ScheduledRequest& request, int32_t kept_count) {
  bool may_go_on = tables.cut(request, request.prompt_count + kept_count);
  ScheduledRequest* const partner = request.partner;
  if (partner != nullptr) may_go_on = tables.cut(*partner, partner->prompt_count + kept_count) && may_go_on;
  if (request.phase == RequestPhase::kWaiting) {
    queues.lookup(request);
    if (partner != nullptr) queues.lookup(*partner);
  } else if (!may_go_on) {
    queues.preempt(request);
    if (partner != nullptr) queues.preempt(*partner);
  }
}

void SchedulerState::discard(const Remains& remains) {
  if (!remains.pin.is_zero()) tables.unpin(remains.pin);
  tables.discard(remains.block_hashes, remains.salt, remains.ids);
  if (remains.companion != nullptr) discard(*remains.companion);
}

void SchedulerState::refresh_stats() {
  queues.describe(stats);
  stats.blocks_total = tables.pool().total_count();
  stats.blocks_free = tables.pool().free_count();
  stats.blocks_cached = tables.pool().cached_count();
  stats.blocks_used = tables.pool().used_count();
  stats.blocks_pinned = tables.cache().pinned_count();
  stats.evicted_blocks_total = tables.cache().counts().evicted;
  stats.evicted_shared_blocks_total = tables.cache().counts().evicted_shared;
}

// Partners stand side by side in one queue and have the same answer.
Status SchedulerState::verify_partners() const {
  for (const auto& [id, request] : queues.all()) {
    const ScheduledRequest* const partner = request->partner;
    if (partner == nullptr) continue;
    const bool linked = partner->partner == request.get() && partner->is_companion != request->is_companion;
    const auto first = std::min(request->arrival_index, partner->arrival_index);
    if (!linked || std::max(request->arrival_index, partner->arrival_index) != first + 1 ||
        request->phase != partner->phase || request->emitted_count() != partner->emitted_count() ||
        request->max_new_count != partner->max_new_count) {
      return absl::InternalError("request " + std::to_string(id) + " and its partner are not side by side");
    }
  }
  return absl::OkStatus();
}

Status SchedulerState::verify() const {
  TROUPE_RETURN_IF_ERROR(queues.verify());
  TROUPE_RETURN_IF_ERROR(verify_partners());
  return tables.verify(queues.running(), counted.reserved_count());
}

}  // namespace troupe
