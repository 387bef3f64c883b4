#include "gateway/route/fleet/set_stats.h"

#include <algorithm>
#include <cmath>

namespace troupe::route {
namespace {

constexpr double kRebaseAbove = 1e12;
// A set with less than this share of the work is not planned for.
constexpr double kNoticeable = 1e-7;

double halvings(Duration passed, double half_life_s) {
  return std::chrono::duration<double>(passed).count() / half_life_s;
}

}  // namespace

SetStats::SetStats(size_t sets_max, Duration half_life, Duration tick)
    : half_life_s_(std::chrono::duration<double>(half_life).count()), tick_(tick), sets_(sets_max) {}

void SetStats::advance(TimePoint now) {
  if (tick_at_ == TimePoint{}) tick_at_ = now;
  if (now < tick_at_ + tick_) return;
  const auto ticks = (now - tick_at_) / tick_;
  tick_at_ += ticks * tick_;
  scale_ *= std::exp2(halvings(ticks * tick_, half_life_s_));
  if (scale_ < kRebaseAbove) return;
  total_ = 0;
  sets_.for_each([&](const Hash128&, Entry& entry) {
    entry.work /= scale_;
    total_ += entry.work;  // which also forgets what forgotten sets had added
  });
  scale_ = 1;
}

void SetStats::note(Hash128 set, std::string_view model, int64_t work_tokens, TimePoint now) {
  advance(now);
  const double work = static_cast<double>(std::max<int64_t>(work_tokens, 1)) * scale_;
  total_ += work;
  if (set.is_zero()) return;  // work all the same, but of no set
  Entry& entry = sets_.touch(set);
  if (entry.model != model) entry.model = model;
  entry.work += work;
}

void SetStats::correct(Hash128 set, int64_t work_tokens, TimePoint now) {
  advance(now);
  Entry* const entry = sets_.find(set);
  if (entry == nullptr) return;
  const double work = std::max(entry->work + static_cast<double>(work_tokens) * scale_, 0.0);
  total_ = std::max(total_ + work - entry->work, 0.0);
  entry->work = work;
}

void SetStats::learn_tokens(Hash128 set, int64_t tokens) {
  if (Entry* entry = sets_.find(set); entry != nullptr) entry->tokens = tokens;
}

int64_t SetStats::tokens(Hash128 set) const {
  const Entry* entry = sets_.find(set);
  return entry == nullptr ? 0 : entry->tokens;
}

double SetStats::share(Hash128 set) const {
  const Entry* entry = sets_.find(set);
  return entry == nullptr || total_ <= 0 ? 0 : std::min(entry->work / total_, 1.0);
}

SetLoads SetStats::loads() {
  SetLoads loads;
  loads.sets.reserve(sets_.size());
  sets_.for_each([&](const Hash128& set, Entry& entry) {
    if (entry.work < kNoticeable * total_) return;
    loads.sets.push_back(SetLoad{set, entry.work / scale_, entry.tokens, entry.model});
  });
  return loads;
}

void SetLoadMerger::report(uint32_t worker, uint64_t epoch, std::string_view model,
                           std::span<const Counter> counters) {
  Worker& w = workers_[worker];
  const bool first = w.epoch != epoch;
  absl::flat_hash_map<Hash128, int64_t> totals;  // what a worker no longer reports is forgotten
  totals.reserve(counters.size());
  for (const Counter& counter : counters) {
    const auto before = w.totals.find(counter.set);
    const int64_t last = first || before == w.totals.end() ? 0 : before->second;
    totals[counter.set] = counter.work_tokens_total;
    Entry& entry = sets_.touch(counter.set);
    entry.load.set = counter.set;
    entry.load.model = model;
    if (counter.tokens > 0) entry.load.tokens = counter.tokens;
    entry.fresh += static_cast<double>(std::max<int64_t>(counter.work_tokens_total - last, 0));
  }
  w.epoch = epoch;
  w.totals = std::move(totals);
}

SetLoads SetLoadMerger::take(TimePoint now) {
  SetLoads loads;
  loads.epoch = ++epoch_;
  const double passed = taken_at_ == TimePoint{}
                            ? 0
                            : halvings(now - taken_at_, std::chrono::duration<double>(half_life_).count());
  taken_at_ = now;
  const double keep = std::exp2(-passed);
  double total = 0;
  sets_.for_each([&](const Hash128&, Entry& entry) {
    entry.load.work = entry.load.work * keep + entry.fresh;
    entry.fresh = 0;
    total += entry.load.work;
  });
  sets_.for_each([&](const Hash128&, Entry& entry) {
    if (entry.load.work > kNoticeable * total) loads.sets.push_back(entry.load);
  });
  return loads;
}

}  // namespace troupe::route
