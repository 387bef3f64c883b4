#include "common/grammar/rules/earley.h"

#include <algorithm>

namespace troupe::grammar {

// A map's entry and an allocation or two, roughly.
static constexpr size_t kEntryBytes = 64;

struct Earley::Draft {
  ColumnId id = 0;
  Column column;
  std::vector<Item> queue;
  absl::flat_hash_set<Item> seen;
  absl::flat_hash_set<RuleId> predicted;

  size_t work = 0;

  void add(ItemId item, ColumnId origin) {
    ++work;
    if (seen.insert({item, origin}).second) queue.push_back({item, origin});
  }
};

Earley::Earley(const Rules* rules, const Limits& limits)
    : rules_(rules), limits_(limits), automaton_(rules->expressions, limits.automaton) {
  for (const RegexId terminal : rules->terminals) terminal_starts_.push_back(automaton_.start(terminal));
  configs_.push_back({});
  const ColumnId root = column_of({{rules->root, kHere}});
  if (exhausted()) return;
  std::vector<Thread> threads;
  add_threads(root, threads);
  start_ = config_of(std::move(threads), columns_[root].accepting);
}

bool Earley::take_memory(size_t bytes) {
  memory_bytes_ += bytes + kEntryBytes;
  if (memory_bytes() > limits_.memory_bytes_max) exhausted_ = true;
  return !exhausted_;
}

std::span<const Earley::Waiting> Earley::waiting(const std::vector<Waiting>& all, uint32_t id) {
  const auto by_id = [](const Waiting& a, const Waiting& b) { return a.id < b.id; };
  const auto [first, last] = std::equal_range(all.begin(), all.end(), Waiting{id, {}}, by_id);
  return {first, last};
}

ConfigId Earley::make_step(ConfigId config, uint8_t byte) {
  std::vector<Thread> next;
  std::vector<Item> seeds;
  const Config from = configs_[config];
  for (uint32_t i = 0; i < from.count; ++i) {
    Thread thread = threads_[from.first + i];
    thread.state = automaton_.next(thread.state, byte);
    if (thread.state == Automaton::kDead) continue;
    if (automaton_.continues(thread.state)) next.push_back(thread);
    if (automaton_.accepting(thread.state)) add_seeds(thread, seeds);
  }
  bool accepting = false;
  if (!seeds.empty()) {
    const ColumnId column = column_of(std::move(seeds));
    if (exhausted()) return kRefused;
    accepting = columns_[column].accepting;
    add_threads(column, next);
  }
  const ConfigId to = config_of(std::move(next), accepting);
  if (exhausted() || !take_memory(0)) return kRefused;
  steps_.emplace(uint64_t{config} << 8 | byte, to);
  return to;
}

// The items that wait for the thread's terminal, moved on.
void Earley::add_seeds(const Thread& thread, std::vector<Item>& seeds) const {
  for (const Waiting& waits : waiting(columns_[thread.column].terminals, thread.terminal))
    seeds.push_back({waits.item.id + 1, waits.item.origin == kHere ? thread.column : waits.item.origin});
}

void Earley::add_threads(ColumnId column, std::vector<Thread>& out) {
  uint32_t last = UINT32_MAX;
  for (const Waiting& waits : columns_[column].terminals) {
    const StateId state = terminal_starts_[waits.id];
    if (waits.id != last && automaton_.continues(state)) out.push_back({state, waits.id, column});
    last = waits.id;
  }
}

ConfigId Earley::config_of(std::vector<Thread> threads, bool accepting) {
  if (threads.empty() && !accepting) return kRefused;
  if (threads.size() > limits_.threads_max) {
    exhausted_ = true;
    return kRefused;
  }
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  std::pair key(std::move(threads), accepting);
  const auto found = config_ids_.find(key);
  if (found != config_ids_.end()) return found->second;
  if (!take_memory(2 * key.first.size() * sizeof(Thread))) return kRefused;
  const auto id = static_cast<ConfigId>(configs_.size());
  configs_.push_back({static_cast<uint32_t>(threads_.size()),
                      static_cast<uint32_t>(key.first.size()),
                      accepting,
                      false,
                      false,
                      {},
                      {}});
  threads_.insert(threads_.end(), key.first.begin(), key.first.end());
  config_ids_.emplace(std::move(key), id);
  return id;
}

ConfigId Earley::behind(const Thread& thread) {
  const uint64_t key = uint64_t{thread.column} << 32 | thread.terminal;
  const auto found = behind_.find(key);
  if (found != behind_.end()) return found->second;
  std::vector<Item> seeds;
  add_seeds(thread, seeds);
  const ColumnId column = column_of(std::move(seeds));
  if (exhausted()) return kRefused;
  std::vector<Thread> threads;
  add_threads(column, threads);
  const ConfigId id = config_of(std::move(threads), columns_[column].accepting);
  if (exhausted() || !take_memory(0)) return kRefused;
  behind_.emplace(key, id);
  return id;
}

bool Earley::may_follow(ConfigId config, uint8_t byte) {
  static constexpr size_t kFew = 8;
  Config& at = configs_[config];
  if (at.count <= kFew) {
    const auto all = threads(config);
    return std::any_of(all.begin(), all.end(), [&](const Thread& thread) {
      return automaton_.next(thread.state, byte) != Automaton::kDead;
    });
  }
  if (!at.knows_firsts) {
    for (const Thread& thread : threads(config)) at.firsts.add_all(automaton_.first_bytes(thread.state));
    at.knows_firsts = true;
  }
  return at.firsts.has(byte);
}

const ByteSet& Earley::bytes(ConfigId config) {
  Config& at = configs_[config];
  if (!at.knows_bytes) {
    for (const Thread& thread : threads(config)) at.bytes.add_all(automaton_.bytes(thread.state));
    at.knows_bytes = true;
  }
  return at.bytes;
}

int32_t Earley::only_byte(ConfigId config) {
  if (config == kRefused || accepting(config)) return -1;
  int32_t only = -1;
  for (uint32_t b = 0; b < 256; ++b) {
    if (!bytes(config).has(static_cast<uint8_t>(b))) continue;
    if (only >= 0) return -1;
    only = static_cast<int32_t>(b);
  }
  return only;
}

ColumnId Earley::column_of(std::vector<Item> seeds) {
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  std::vector<uint32_t> key;
  key.reserve(2 * seeds.size());
  for (const Item& seed : seeds) {
    key.push_back(seed.id);
    key.push_back(seed.origin);
  }
  const auto found = column_ids_.find(key);
  if (found != column_ids_.end()) return found->second;
  Draft draft;
  draft.id = static_cast<ColumnId>(columns_.size());
  for (const Item& seed : seeds) draft.add(seed.id, seed.origin);
  for (size_t i = 0; i < draft.queue.size(); ++i) {
    if (draft.work > limits_.column_work_max) exhausted_ = true;
    if (exhausted_) return 0;
    advance(draft, draft.queue[i]);
  }
  Column& column = draft.column;
  std::sort(column.terminals.begin(), column.terminals.end());
  std::sort(column.rules.begin(), column.rules.end());
  add_short_cuts(column);
  const size_t entries = column.terminals.size() + column.rules.size() + column.short_cuts.size();
  if (!take_memory(entries * sizeof(Waiting) + key.size() * 4 + sizeof(Column))) return 0;
  column_ids_.emplace(std::move(key), draft.id);
  columns_.push_back(std::move(column));
  return draft.id;
}

void Earley::advance(Draft& draft, const Item& item_in_queue) {
  const Item item = item_in_queue;  // (the queue grows)
  const Rules::Next& next = rules_->items[item.id];
  switch (next.kind) {
    case Rules::Next::Kind::kTerminal:
      draft.column.terminals.push_back({next.id, item});
      break;
    case Rules::Next::Kind::kRule:
      draft.column.rules.push_back({next.id, item});
      if (draft.predicted.insert(next.id).second)
        for (const ItemId start : rules_->starts[next.id]) draft.add(start, kHere);
      break;
    case Rules::Next::Kind::kEnd:
      if (next.id == rules_->root_rule) {
        draft.column.accepting = true;
      } else if (item.origin != kHere) {  // else the rule matched nothing, which its nullable users know
        complete(draft, next.id, item.origin);
      }
      return;
  }
  if (next.nullable) draft.add(item.id + 1, item.origin);
}

void Earley::complete(Draft& draft, RuleId rule, ColumnId origin) {
  const Column& from = columns_[origin];
  const auto short_cut = std::lower_bound(from.short_cuts.begin(), from.short_cuts.end(), rule,
                                          [](const auto& entry, RuleId id) { return entry.first < id; });
  if (short_cut != from.short_cuts.end() && short_cut->first == rule) {
    draft.add(short_cut->second.id, short_cut->second.origin);
    return;
  }
  for (const Waiting& waits : waiting(from.rules, rule))
    draft.add(waits.item.id + 1, waits.item.origin == kHere ? origin : waits.item.origin);
}

// Where one item alone waits for a rule and ends its own production with it, the rule's end is that
// production's end: of the short-cut that its own column has for it, if there is one.
void Earley::add_short_cuts(Column& column) const {
  for (size_t i = 0; i < column.rules.size(); ++i) {
    const Waiting& waits = column.rules[i];
    const bool is_single = (i == 0 || column.rules[i - 1].id != waits.id) &&
                           (i + 1 == column.rules.size() || column.rules[i + 1].id != waits.id);
    const Item end{waits.item.id + 1, waits.item.origin};
    const Rules::Next& next = rules_->items[end.id];
    if (!is_single || end.origin == kHere || next.kind != Rules::Next::Kind::kEnd) continue;
    const auto& outer = columns_[end.origin].short_cuts;
    const auto found = std::lower_bound(outer.begin(), outer.end(), next.id,
                                        [](const auto& entry, RuleId id) { return entry.first < id; });
    const bool has_outer = found != outer.end() && found->first == next.id;
    column.short_cuts.emplace_back(waits.id, has_outer ? found->second : end);
  }
}

}  // namespace troupe::grammar
