#include "tests/gateway/faults/worker.h"

#include <algorithm>

namespace troupe::route::faults {

void FaultWorker::die() {
  alive = draining = false;
  holds_.clear();
  by_age_.clear();
  counters_.clear();
  running = work_ = 0;
}

void FaultWorker::come_back() {
  alive = true;
  life += 1;
  seq_ = 0;
}

void FaultWorker::hold(const Hash128& name, Item item, WireEvent& admitted) {
  if (name.is_zero() || item.tokens <= 0) return;
  const auto found = std::find(by_age_.begin(), by_age_.end(), name);
  if (found != by_age_.end()) by_age_.erase(found);
  by_age_.push_back(name);
  holds_[name] = item;
  admitted.items.push_back({name, item.kind, item.tokens});
}

std::vector<WireEvent> FaultWorker::compute(const PrefixKey& key, int64_t answer_tokens, int64_t& cached) {
  cached = 0;
  for (const Hash128& name : {key.set, key.session}) {
    if (const auto it = holds_.find(name); it != holds_.end()) cached = std::max(cached, it->second.tokens);
  }
  cached = std::min(cached, key.prompt_tokens - 1);
  work_ += key.prompt_tokens - cached + answer_tokens;
  if (!key.set.is_zero()) {
    SetLoadMerger::Counter& counter = counters_[key.set];
    counter.set = key.set;
    counter.work_tokens_total += key.prompt_tokens - cached + answer_tokens;
    counter.tokens = key.prefix_tokens;
  }
  WireEvent admitted{ResidencyEvent::Kind::kAdmitted, life, 0, {}};
  hold(key.session, {HolderKind::kSession, key.prompt_tokens + answer_tokens}, admitted);
  hold(key.set, {HolderKind::kSet, key.prefix_tokens}, admitted);
  WireEvent evicted{ResidencyEvent::Kind::kEvicted, life, 0, {}};
  while (holds_.size() > items_max_) {
    evicted.items.push_back({by_age_.front(), holds_[by_age_.front()].kind, 0});
    holds_.erase(by_age_.front());
    by_age_.pop_front();
  }
  std::vector<WireEvent> told;
  for (WireEvent* event : {&admitted, &evicted}) {
    if (event->items.empty()) continue;
    event->seq = ++seq_;
    told.push_back(std::move(*event));
  }
  return told;
}

WireEvent FaultWorker::snapshot() const {
  WireEvent out{ResidencyEvent::Kind::kSnapshot, life, seq_, {}};
  for (const auto& [name, item] : holds_) out.items.push_back({name, item.kind, item.tokens});
  return out;
}

NodeReport FaultWorker::report() const {
  NodeReport out;
  out.running = running;
  out.work_tokens_total = work_;
  out.max_num_seqs = 64;
  out.kv_tokens_total = kv_tokens_;
  out.kv_tokens_free = kv_tokens_ / 2;
  return out;
}

std::vector<SetLoadMerger::Counter> FaultWorker::counters() const {
  std::vector<SetLoadMerger::Counter> out;
  for (const auto& [set, counter] : counters_) out.push_back(counter);
  return out;
}

}  // namespace troupe::route::faults
