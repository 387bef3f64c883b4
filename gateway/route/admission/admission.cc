#include "gateway/route/admission/admission.h"

#include <algorithm>

namespace troupe::route {

namespace {

Hash128 flow_id(const Hash128& pool, const AdmissionRequest& request) {
  const uint64_t parts[] = {request.key.id.hi, request.key.id.lo, request.persona.hi, request.persona.lo,
                            FairQueue::band_of(request.priority)};
  return chain_hash(pool, {reinterpret_cast<const char*>(parts), sizeof parts});
}

int64_t cost_of(const AdmissionRequest& request) {
  return std::max<int64_t>(request.tokens, 1);
}

int64_t answer_tokens_of(const AdmissionRequest& request) {
  return std::max<int64_t>(cost_of(request) - request.prompt_tokens, 1);
}

double per_token_of(const AdmissionKey& key, int64_t flows) {
  return static_cast<double>(flows) / key.weight;
}

}  // namespace

std::string_view admission_outcome_name(AdmissionOutcome outcome) {
  constexpr std::string_view kNames[kAdmissionOutcomeCount] = {
      "admitted",   "waiting",   "queue_full", "key_queue_full", "would_be_late",
      "pushed_out", "timed_out", "deadline",   "drained"};
  return kNames[static_cast<size_t>(outcome)];
}

void Admission::Count::add(int64_t count, int64_t of_tokens) {
  requests += count;
  tokens += count * of_tokens;
}

bool Admission::Count::below(const AdmissionLimits& limits) const {
  return (limits.requests == 0 || requests < limits.requests) &&
         (limits.tokens == 0 || tokens < limits.tokens);
}

Admission::Pool::Pool(std::string_view model, const Hash128& hashed, LruMap<double>& memory, bool fair,
                      double base)
    : name(model), hash(hashed), queue(memory, fair, base) {}

Admission::Admission(const AdmissionOptions& options) : options_(options), memory_(options.flows_max) {}

bool Admission::may_enter(const Pool& pool, const Key* key, const Persona* persona) const {
  return pool.running < pool.room && inside_.below(options_.total) &&
         (key == nullptr || key->inside.below(key->terms.limits)) &&
         (persona == nullptr || persona->inside.below(options_.persona));
}

// REQUIRES: all waiting requests that may enter have been admitted. So one that may enter now overtakes none.
Admission::Answer Admission::judge(const AdmissionRequest& request, TimePoint now) const {
  Answer answer;
  const auto pool = pools_.find(hash_bytes(request.pool));
  const auto key = keys_.find(request.key.id);
  const auto persona = personas_.find(request.persona);
  const int64_t running = pool == pools_.end() ? 0 : pool->second->running;
  const bool has_room = running < request.pool_room && inside_.below(options_.total);
  const bool key_may = key == keys_.end() || key->second->inside.below(request.key.limits);
  const bool persona_may = persona == personas_.end() || persona->second->inside.below(options_.persona);
  if (has_room && key_may && persona_may) return answer;
  answer.outcome = AdmissionOutcome::kWaiting;
  if (pool == pools_.end()) {
    answer.wait = kComeBackMin;
    if (options_.queue_max == 0) answer.outcome = AdmissionOutcome::kQueueFull;
    return answer;
  }
  const FairQueue& queue = pool->second->queue;
  const Hash128 flow = flow_id(pool->first, request);
  const int64_t flows = key == keys_.end() ? 0 : key->second->share.flows;
  const double per_token = per_token_of(request.key, flows + 1);
  const auto wait = wait_of(*pool->second, flow, request.priority, per_token, answer_tokens_of(request));
  answer.wait = come_back(*pool->second, wait);
  if (wait && now + *wait > request.deadline) answer.outcome = AdmissionOutcome::kWouldBeLate;
  const bool full = queue.waiting() >= options_.queue_max;
  if (full && (!options_.fair || queue.largest_backlog(flow, request.priority, per_token) == nullptr))
    answer.outcome = AdmissionOutcome::kQueueFull;
  if (key != keys_.end() && request.key.waiting_max > 0 && key->second->waiting >= request.key.waiting_max)
    answer.outcome = AdmissionOutcome::kKeyQueueFull;
  return answer;
}

Admission::Answer Admission::arrive(const AdmissionRequest& request, TimePoint now) {
  if (waiting_ > 0) {
    pool_room(request.pool, request.pool_room);
    expire(now);
    fill(now);
  }
  Answer answer = judge(request, now);
  const bool waits = answer.outcome == AdmissionOutcome::kWaiting;
  if (!waits && answer.outcome != AdmissionOutcome::kAdmitted) return answer;
  answer.ticket = ++tickets_;
  Entry& entry = make_entry(request, answer.ticket, now);
  if (waits) {
    enqueue(answer.ticket, entry, now);
  } else {
    entry.pool->queue.pass(*entry.flow, entry.tokens);
    count_in(entry, now);
  }
  return answer;
}

Admission::Entry& Admission::make_entry(const AdmissionRequest& request, uint64_t ticket, TimePoint now) {
  Entry& entry = entries_[ticket];
  const Hash128 hash = hash_bytes(request.pool);
  std::unique_ptr<Pool>& pool = pools_[hash];
  if (pool == nullptr) pool = std::make_unique<Pool>(request.pool, hash, memory_, options_.fair, base_);
  entry.pool = pool.get();
  entry.pool->room = request.pool_room;
  entry.pool->entries += 1;
  std::unique_ptr<Key>& key = keys_[request.key.id];
  if (key == nullptr) key = std::make_unique<Key>();
  key->terms = request.key;
  key->share.weight = request.key.weight;
  entry.key = key.get();
  if (!request.persona.is_zero()) {
    std::unique_ptr<Persona>& persona = personas_[request.persona];
    if (persona == nullptr) persona = std::make_unique<Persona>();
    persona->id = request.persona;
    persona->entries += 1;
    entry.persona = persona.get();
  }
  entry.flow = &entry.pool->queue.flow(flow_id(hash, request), request.priority, entry.key->share);
  entry.tokens = cost_of(request);
  entry.answer_tokens = answer_tokens_of(request);
  entry.answers = std::max<int64_t>(request.answers, 1);
  entry.arrived = now;
  const TimePoint wait_end = now + options_.wait_max;
  entry.deadline = std::min(request.deadline, wait_end);
  if (wait_end < request.deadline) entry.late = AdmissionOutcome::kTimedOut;
  return entry;
}

void Admission::enqueue(uint64_t ticket, Entry& entry, TimePoint now) {
  entry.pool->drain.advance(entry.pool->queue.waiting() > 0, now);
  if (entry.pool->queue.waiting() >= options_.queue_max) push_out(entry, now);
  FairQueue::Item item;
  item.ticket = item.arrival = ticket;
  item.tokens = entry.tokens;
  entry.item = entry.pool->queue.push(*entry.flow, item);
  count_waiting(entry, 1);
  deadlines_.emplace(entry.deadline, ticket);
}

// Removes the latest request of the flow that takes most of the queue.
void Admission::push_out(const Entry& entry, TimePoint now) {
  const FairQueue::Flow& flow = *entry.flow;
  FairQueue::Flow* most = entry.pool->queue.largest_backlog(flow.id, flow.priority(), flow.per_token());
  if (most != nullptr) send_away(most->waiting.back().ticket, AdmissionOutcome::kPushedOut, now);
}

void Admission::count_in(Entry& entry, TimePoint now) {
  entry.admitted = now;
  entry.pool->running += entry.answers;
  entry.flow->inside += 1;
  entry.key->inside.add(1, entry.tokens);
  if (entry.persona != nullptr) entry.persona->inside.add(1, entry.tokens);
  inside_.add(1, entry.tokens);
}

void Admission::count_waiting(Entry& entry, int change) {
  entry.waits = change > 0;
  entry.key->waiting += change;
  entry.pool->waiting_answer_tokens += change * entry.answer_tokens;
  waiting_ += static_cast<size_t>(change);
}

void Admission::leave(uint64_t ticket, std::optional<int64_t> tokens, TimePoint now) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (entry.waits) {
    entry.pool->drain.advance(true, now);
    deadlines_.erase({entry.deadline, ticket});
    entry.pool->queue.take_out(*entry.flow, entry.item);
    count_waiting(entry, -1);
  } else {
    std::erase_if(events_, [ticket](const Event& event) { return event.ticket == ticket; });
    entry.pool->running -= entry.answers;
    entry.flow->inside -= 1;
    entry.key->inside.add(-1, entry.tokens);
    if (entry.persona != nullptr) entry.persona->inside.add(-1, entry.tokens);
    inside_.add(-1, entry.tokens);
    if (tokens) {
      entry.pool->queue.correct(*entry.flow, *tokens - entry.tokens);
      entry.pool->service.served(entry.answer_tokens, (now - entry.admitted) * entry.answers);
    }
  }
  erase(ticket);
}

// Erases the entry, and its pool, key and persona where no other entry uses them.
void Admission::erase(uint64_t ticket) {
  const Entry entry = entries_.find(ticket)->second;
  entries_.erase(ticket);
  if (entry.flow->inside == 0 && entry.flow->waiting.empty()) entry.pool->queue.drop(*entry.flow);
  if (entry.persona != nullptr && --entry.persona->entries == 0) {
    const Hash128 id = entry.persona->id;
    personas_.erase(id);
  }
  if (entry.key->share.flows == 0) {
    const Hash128 id = entry.key->terms.id;
    keys_.erase(id);
  }
  if (--entry.pool->entries == 0) {
    base_ = std::max(base_, entry.pool->queue.virtual_time_max());
    const Hash128 hash = entry.pool->hash;
    pools_.erase(hash);
  }
}

void Admission::emit(uint64_t ticket, AdmissionOutcome outcome, TimePoint now) {
  const Entry& entry = entries_.find(ticket)->second;
  Event event;
  event.ticket = ticket;
  event.outcome = outcome;
  event.waited = now - entry.arrived;
  const FairQueue::Flow& flow = *entry.flow;
  if (outcome != AdmissionOutcome::kAdmitted) {
    const auto wait = wait_of(*entry.pool, flow.id, flow.priority(), flow.per_token(), entry.answer_tokens);
    event.wait = come_back(*entry.pool, wait);
  }
  events_.push_back(event);
}

void Admission::send_away(uint64_t ticket, AdmissionOutcome outcome, TimePoint now) {
  Entry& entry = entries_.find(ticket)->second;
  entry.pool->drain.advance(true, now);
  emit(ticket, outcome, now);
  deadlines_.erase({entry.deadline, ticket});
  entry.pool->queue.take_out(*entry.flow, entry.item);
  count_waiting(entry, -1);
  erase(ticket);
}

void Admission::expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const uint64_t ticket = deadlines_.begin()->second;
    send_away(ticket, entries_.find(ticket)->second.late, now);
  }
}

// Admits one request of each pool in turn, so that a total limit starves no pool.
void Admission::fill(TimePoint now) {
  for (bool went = true; went && waiting_ > 0;) {
    went = false;
    for (auto& [hash, pool] : pools_) went = let_next_in(*pool, now) || went;
  }
}

bool Admission::let_next_in(Pool& pool, TimePoint now) {
  if (pool.queue.waiting() == 0) return false;
  pool.drain.advance(true, now);
  const auto taken = pool.queue.take([this, &pool](const FairQueue::Flow& flow) {
    const Entry& entry = entries_.find(flow.waiting.front().ticket)->second;
    return may_enter(pool, entry.key, entry.persona);
  });
  if (!taken) return false;
  const uint64_t ticket = taken->item.ticket;
  Entry& entry = entries_.find(ticket)->second;
  entry.item = {};
  deadlines_.erase({entry.deadline, ticket});
  count_waiting(entry, -1);
  count_in(entry, now);
  pool.drain.let_in(entry.tokens);
  emit(ticket, AdmissionOutcome::kAdmitted, now);
  return true;
}

std::vector<Admission::Event> Admission::advance(TimePoint now) {
  if (waiting_ > 0) {
    expire(now);
    fill(now);
  }
  return std::exchange(events_, {});
}

std::optional<TimePoint> Admission::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

// A request waits for those before it, and then for a place; not for its own prompt.
std::optional<Duration> Admission::wait_of(const Pool& pool, const Hash128& flow, int32_t priority,
                                           double per_token, int64_t answer_tokens) {
  double ahead = pool.queue.tokens_ahead(flow, priority, per_token);
  auto rate = pool.drain.rate();
  if (!rate && pool.room > 0 && pool.service.rate()) {
    // (The pool's room and speed change: only a request that is late at twice that is refused for it.)
    rate = 2 * static_cast<double>(pool.room) * *pool.service.rate();
    const auto waiting = static_cast<double>(std::max<int64_t>(pool.queue.waiting_tokens(), 1));
    ahead *= static_cast<double>(pool.waiting_answer_tokens) / waiting;
  }
  if (!rate) return std::nullopt;
  return seconds_at_most_a_day((ahead + static_cast<double>(answer_tokens)) / *rate);
}

// With an unknown drain rate: the time since the last admission.
Duration Admission::come_back(const Pool& pool, const std::optional<Duration>& wait) {
  return come_back_after(wait ? *wait : pool.drain.stalled());
}

void Admission::pool_room(std::string_view pool, int64_t requests) {
  if (const auto known = pools_.find(hash_bytes(pool)); known != pools_.end()) known->second->room = requests;
}

std::vector<std::string> Admission::waiting_pools() const {
  std::vector<std::string> names;
  for (const auto& [hash, pool] : pools_) {
    if (pool->queue.waiting() > 0) names.push_back(pool->name);
  }
  return names;
}

void Admission::change(const AdmissionOptions& options) {
  const size_t flows_max = options_.flows_max;
  options_ = options;
  options_.flows_max = flows_max;
  for (auto& [hash, pool] : pools_) pool->queue.set_fair(options.fair);
}

void Admission::drain(TimePoint until) {
  for (auto& [ticket, entry] : entries_) {
    if (!entry.waits || entry.deadline <= until) continue;
    deadlines_.erase({entry.deadline, ticket});
    entry.deadline = until;
    entry.late = AdmissionOutcome::kDrained;
    deadlines_.emplace(until, ticket);
  }
}

size_t Admission::waiting(int32_t priority) const {
  size_t count = 0;
  for (const auto& [hash, pool] : pools_) count += pool->queue.waiting(priority);
  return count;
}

size_t Admission::flows() const {
  size_t count = 0;
  for (const auto& [hash, pool] : pools_) count += pool->queue.flows();
  return count;
}

bool Admission::consistent() const {
  Count inside;
  size_t waiting = 0;
  absl::flat_hash_map<const Key*, Count> by_key;
  absl::flat_hash_map<const Pool*, int64_t> by_pool;
  for (const auto& [ticket, entry] : entries_) {
    waiting += entry.waits ? 1 : 0;
    if (entry.waits) continue;
    inside.add(1, entry.tokens);
    by_key[entry.key].add(1, entry.tokens);
    by_pool[entry.pool] += entry.answers;
  }
  bool ok = inside.requests == inside_.requests && inside.tokens == inside_.tokens && waiting == waiting_ &&
            deadlines_.size() == waiting_ && memory_.size() <= options_.flows_max;
  for (const auto& [id, key] : keys_)
    ok = ok && by_key[key.get()].requests == key->inside.requests &&
         by_key[key.get()].tokens == key->inside.tokens;
  for (const auto& [hash, pool] : pools_)
    ok = ok && by_pool[pool.get()] == pool->running && pool->queue.consistent();
  return ok;
}

}  // namespace troupe::route
