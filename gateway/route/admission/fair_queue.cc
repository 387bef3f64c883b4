#include "gateway/route/admission/fair_queue.h"

#include <algorithm>

#include "common/core/check.h"

namespace troupe::route {

namespace {

// Share of admitted tokens that goes to the classes passed over.
constexpr double kFloor = 1.0 / 8;

}  // namespace

FairQueue::FairQueue(LruMap<double>& memory, bool fair, double base) : memory_(memory), fair_(fair) {
  for (Band& band : bands_) band.virtual_time = base;
}

void FairQueue::set_fair(bool fair) {
  if (fair == fair_) return;
  for (auto& [id, flow] : flows_)
    if (!flow->waiting.empty()) leave_order(*flow);
  fair_ = fair;
  for (auto& [id, flow] : flows_)
    if (!flow->waiting.empty()) enter_order(*flow);
}

size_t FairQueue::band_of(int32_t priority) {
  return static_cast<size_t>(std::clamp(priority, kPriorityMin, kPriorityMax) - kPriorityMin);
}

FairQueue::Flow& FairQueue::flow(const Hash128& id, int32_t priority, Share& share) {
  TROUPE_CHECK(share.weight > 0, "a flow's share must weigh something");
  std::unique_ptr<Flow>& flow = flows_[id];
  if (flow == nullptr) {
    flow = std::make_unique<Flow>();
    flow->id = id;
    flow->share = &share;
    flow->band = band_of(priority);
    if (const double* finish = memory_.find(id)) flow->finish = *finish;
    share.flows += 1;
  }
  return *flow;
}

double FairQueue::start_of(const Flow* known, const Hash128& id, const Band& band) const {
  if (known != nullptr) {
    return known->waiting.empty() ? std::max(band.virtual_time, known->finish) : known->start;
  }
  const double* finish = memory_.find(id);
  return finish == nullptr ? band.virtual_time : std::max(band.virtual_time, *finish);
}

// A finish behind virtual time is not remembered: a new flow begins there anyway.
void FairQueue::drop(Flow& flow) {
  TROUPE_CHECK(flow.inside == 0 && flow.waiting.empty(), "a flow is dropped that has requests");
  if (flow.finish > bands_[flow.band].virtual_time) memory_.touch(flow.id) = flow.finish;
  flow.share->flows -= 1;
  const Hash128 id = flow.id;
  flows_.erase(id);
}

void FairQueue::charge(Flow& flow, int64_t tokens) {
  Band& band = bands_[flow.band];
  const double start = std::max(band.virtual_time, flow.finish);
  band.virtual_time = start;
  flow.finish = start + static_cast<double>(tokens) * flow.per_token();
}

void FairQueue::pass(Flow& flow, int64_t tokens) {
  charge(flow, tokens);
}

void FairQueue::enter_order(Flow& flow) {
  Band& band = bands_[flow.band];
  flow.start = std::max(flow.start, flow.finish);
  const uint64_t arrival = flow.waiting.front().arrival;
  flow.place = fair_ ? flow.start : static_cast<double>(arrival);
  band.order.insert({flow.place, arrival, &flow});
}

void FairQueue::leave_order(Flow& flow) {
  bands_[flow.band].order.erase({flow.place, flow.waiting.front().arrival, &flow});
}

std::list<FairQueue::Item>::iterator FairQueue::push(Flow& flow, const Item& item) {
  Band& band = bands_[flow.band];
  flow.waiting.push_back(item);
  flow.waiting_tokens += item.tokens;
  band.items += 1;
  band.tokens += item.tokens;
  waiting_ += 1;
  if (flow.waiting.size() == 1) {
    flow.start = std::max(band.virtual_time, flow.finish);
    enter_order(flow);
  }
  return std::prev(flow.waiting.end());
}

void FairQueue::take_out(Flow& flow, std::list<Item>::iterator item) {
  Band& band = bands_[flow.band];
  leave_order(flow);
  flow.waiting_tokens -= item->tokens;
  band.tokens -= item->tokens;
  band.items -= 1;
  waiting_ -= 1;
  flow.waiting.erase(item);
  if (!flow.waiting.empty()) enter_order(flow);
}

bool FairQueue::waits_behind(size_t band) const {
  return std::any_of(bands_.begin() + static_cast<long>(band) + 1, bands_.end(),
                     [](const Band& later) { return later.items > 0; });
}

FairQueue::Taken FairQueue::take_of(const Pick& pick) {
  Flow& flow = *pick.flow;
  Band& band = bands_[flow.band];
  const Item item = flow.waiting.front();
  const auto tokens = static_cast<double>(item.tokens);
  if (pick.by_floor) {
    owed_ -= tokens;
    band.turn = ++turns_;
  } else if (pick.others_may) {
    owed_ += tokens * kFloor / (1 - kFloor);
  } else if (!waits_behind(flow.band)) {
    owed_ = 0;
  }
  // A flow that its limits held back while others advanced is next, but has saved up nothing.
  flow.finish = flow.start;
  charge(flow, item.tokens);
  take_out(flow, flow.waiting.begin());
  return {&flow, item};
}

void FairQueue::correct(Flow& flow, int64_t tokens) {
  const bool waits = !flow.waiting.empty();
  if (waits) leave_order(flow);
  flow.finish += static_cast<double>(tokens) * flow.per_token();
  if (!waits) return;
  flow.start = std::max(bands_[flow.band].virtual_time, flow.finish);
  enter_order(flow);
}

FairQueue::Flow* FairQueue::largest_backlog(const Hash128& id, int32_t priority, double per_token) const {
  const size_t own_band = band_of(priority);
  const auto found = flows_.find(id);
  const Flow* own = found == flows_.end() ? nullptr : found->second.get();
  const double backlog = own == nullptr ? per_token : own->backlog() + own->per_token();
  for (size_t band = kBands; band-- > own_band;) {
    Flow* most = nullptr;
    for (const Place& place : bands_[band].order)
      if (most == nullptr || place.flow->backlog() > most->backlog()) most = place.flow;
    if (most == nullptr) continue;
    return band > own_band || (most != own && most->backlog() > backlog) ? most : nullptr;
  }
  return nullptr;
}

int64_t FairQueue::waiting_tokens() const {
  int64_t tokens = 0;
  for (const Band& band : bands_) tokens += band.tokens;
  return tokens;
}

double FairQueue::tokens_ahead(const Hash128& id, int32_t priority, double per_token) const {
  if (!fair_) return static_cast<double>(waiting_tokens());
  const size_t own_band = band_of(priority);
  const auto found = flows_.find(id);
  const Flow* own = found == flows_.end() ? nullptr : found->second.get();
  auto tokens = static_cast<double>(own == nullptr ? 0 : own->waiting_tokens);
  const double start =
      start_of(own, id, bands_[own_band]) + tokens * (own == nullptr ? per_token : own->per_token());
  for (size_t band = 0; band < own_band; ++band) tokens += static_cast<double>(bands_[band].tokens);
  for (const Place& place : bands_[own_band].order) {
    const Flow& other = *place.flow;
    if (other.start >= start) break;
    if (&other == own) continue;
    const double until = (start - other.start) / other.per_token();
    tokens += std::min(static_cast<double>(other.waiting_tokens), until);
  }
  return tokens;
}

double FairQueue::virtual_time_max() const {
  double most = 0;
  for (const Band& band : bands_) most = std::max(most, band.virtual_time);
  return most;
}

bool FairQueue::consistent() const {
  std::array<size_t, kBands> items{}, flows{};
  std::array<int64_t, kBands> tokens{};
  for (const auto& [id, flow] : flows_) {
    int64_t sum = 0;
    for (const Item& item : flow->waiting) sum += item.tokens;
    if (sum != flow->waiting_tokens) return false;
    items[flow->band] += flow->waiting.size();
    tokens[flow->band] += sum;
    flows[flow->band] += flow->waiting.empty() ? 0 : 1;
  }
  size_t all = 0;
  for (size_t i = 0; i < kBands; ++i) {
    const Band& band = bands_[i];
    if (band.items != items[i] || band.tokens != tokens[i] || band.order.size() != flows[i]) return false;
    all += items[i];
  }
  return all == waiting_;
}

}  // namespace troupe::route
