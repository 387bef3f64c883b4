#include "worker/schedule/scheduler_state.h"

#include <algorithm>
#include <utility>

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
  queues.leave(request);
  // Its memory was needed for so long, whatever ended it. A request in the background answers nothing.
  const int32_t emitted_count = request.emitted_count();
  if (emitted_count > 0 && !request.in_background()) lengths.record(request.spec.set, emitted_count);
  tables.release(request);
  if (complete && !request.spec.pin.is_zero()) tables.pin(request);
  pins.drop(request);
  Remains remains{std::move(request.block_hashes), std::move(request.ids), request.spec.salt,
                  request.spec.pin};
  queues.erase(request);
  return remains;
}

void SchedulerState::rewind(ScheduledRequest& request, int32_t kept_count) {
  const bool may_go_on = tables.cut(request, request.prompt_count + kept_count);
  if (request.phase == RequestPhase::kWaiting) {
    queues.lookup(request);
  } else if (!may_go_on) {
    queues.preempt(request);
  }
}

void SchedulerState::discard(const Remains& remains) {
  if (!remains.pin.is_zero()) tables.unpin(remains.pin);
  tables.discard(remains.block_hashes, remains.salt, remains.ids);
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

Status SchedulerState::verify() const {
  TROUPE_RETURN_IF_ERROR(queues.verify());
  return tables.verify(queues.running(), counted.reserved_count());
}

}  // namespace troupe
