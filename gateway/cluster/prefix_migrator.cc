#include "gateway/cluster/prefix_migrator.h"

#include <algorithm>
#include <utility>

#include "common/api/prefix.h"
#include "common/json/json.h"
#include "common/settings/schema.h"
#include "gateway/upstream/ask_once.h"
#include "gateway/upstream/headers.h"

namespace troupe {

using route::Handover;
using route::kNoNode;
using route::NodeIndex;

namespace {

constexpr auto kIdleTick = std::chrono::seconds(1);  // for the gauges alone

int64_t integer_at(const bj::object& fields, const char* name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_int64() ? value->as_int64() : 0;
}

}  // namespace

// However it ends, the set has moved.
class PrefixMigrator::Moving {
 public:
  Moving(PrefixMigrator& migrator, const Handover::Move& move)
      : migrator_(migrator), hold_(migrator.fleet_), move_(move) {}
  ~Moving() { migrator_.router_.handover().done(move_); }
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;

 private:
  PrefixMigrator& migrator_;
  const Fleet::Hold hold_;
  const Handover::Move move_;
};

PrefixMigrator::PrefixMigrator(const PrefixMigratorOptions& options, const Parts& parts)
    : options_(options),
      look_again_(parts.executor),
      fleet_(parts.fleet),
      router_(parts.router),
      texts_(parts.texts),
      clock_(parts.clock),
      log_(parts.log),
      texts_kept_(parts.metrics.gauge("troupe_gateway_prefix_texts",
                                      "Personas whose text is kept, to have it computed ahead.")),
      text_bytes_(parts.metrics.gauge("troupe_gateway_prefix_text_bytes", "Memory of these texts.")),
      computed_tokens_(parts.metrics.counter(
          "troupe_gateway_moved_tokens_total",
          "Tokens of sets and conversations that were on their way to a worker.", {{"how", "computed"}})),
      cached_tokens_(parts.metrics.counter(
          "troupe_gateway_moved_tokens_total",
          "Tokens of sets and conversations that were on their way to a worker.", {{"how", "cached"}})),
      failed_(parts.metrics.counter("troupe_gateway_moves_failed_total",
                                    "Sets that moved without having been computed, for a worker refused.")),
      conversations_(parts.metrics.counter("troupe_gateway_moved_conversations_total",
                                           "Conversations of workers that left, computed elsewhere.")) {
  if (!options_.enabled) return;
  fleet_.on_leaving = [this](NodeIndex node, TimePoint until) { leave(node, until); };
  fleet_.on_begins_empty = [this](NodeIndex node) { join(node); };
}

PrefixMigrator::~PrefixMigrator() {
  fleet_.on_leaving = nullptr;
  fleet_.on_begins_empty = nullptr;
}

void PrefixMigrator::start(TaskGroup& group) {
  if (options_.enabled) group.spawn(run(group));
}

Task<void> PrefixMigrator::run(TaskGroup& group) {
  while (true) {
    Handover& handover = router_.handover();
    handover.advance(clock_.now());
    for (auto& leaving : std::exchange(to_ask_, {}))
      group.spawn(ask_for_conversations(std::move(leaving), group));
    while (const auto move = handover.next()) begin(*move, group);
    end_leaving();
    const bool ramps = fleet_.ramp();
    texts_kept_.Set(static_cast<double>(texts_.size()));
    text_bytes_.Set(static_cast<double>(texts_.bytes()));
    const Duration pause = ramps || !handover.empty() ? options_.tick : kIdleTick;
    co_await look_again_.sleep_until(std::chrono::steady_clock::now() + pause);
  }
}

void PrefixMigrator::leave(NodeIndex node, TimePoint until) {
  const TimePoint now = clock_.now();
  const std::vector<Hash128> sets = router_.targets().sets_of(node);
  log_.info("sets_leave", {{"worker", fleet_.id(node)}, {"sets", sets.size()}});
  const TimePoint by = std::min(until, now + options_.deadline);
  router_.handover().leave(node, sets, by);
  if (fleet_.is_troupe_worker(node)) hold_for_conversations(node, now, by);
  look_again_.wake();
}

void PrefixMigrator::join(NodeIndex node) {
  std::vector<Hash128> wanted;
  for (const std::string& model : router_.view().node(node).models) {
    const std::vector<Hash128> sets = router_.targets().sets_for(node, model, texts_.sets_of(model));
    wanted.insert(wanted.end(), sets.begin(), sets.end());
  }
  if (!fleet_.is_troupe_worker(node)) wanted.clear();
  if (!wanted.empty()) log_.info("sets_come", {{"worker", fleet_.id(node)}, {"sets", wanted.size()}});
  router_.handover().join(node, wanted, clock_.now() + options_.deadline);
  look_again_.wake();
}

void PrefixMigrator::begin(Handover::Move move, TaskGroup& group) {
  Handover& handover = router_.handover();
  const PrefixTextCache::Text* text = texts_.find(move.set);
  if (text != nullptr && move.from != kNoNode) {
    const NodeIndex to = router_.targets().next_home(move.set, text->model, move.from);
    if (to != kNoNode) handover.set_target(move, to);
  }
  const bool can = text != nullptr && move.to != kNoNode && fleet_.is_troupe_worker(move.to) &&
                   router_.view().routable(move.to);
  if (!can || !group.spawn(compute(move, *text))) handover.done(move);
}

Task<void> PrefixMigrator::compute(Handover::Move move, PrefixTextCache::Text text) {
  const Moving moving(*this, move);
  ClientRequest request;
  request.method = "POST";
  request.target = kPrefixesPath;
  request.headers.emplace_back("content-type", "application/json");
  append_hints(text.key, router_.at_home(text.key, text.model, move.to), request.headers);
  request.body = text.body;
  const Deadline within = Deadline::after(clock_.now(), options_.deadline);
  const ForwardResult result = co_await ask_once(fleet_.client(move.to), request, within);
  const auto answer = parse_json(result.held_body);
  if (result.end != ForwardResult::End::kAnswered || !answer.ok() || !answer->is_object()) {
    failed_.Increment();
    log_.debug("set_not_computed", {{"worker", fleet_.id(move.to)}, {"status", result.status}});
    co_return;
  }
  count(answer->as_object());
  router_.targets().computed(move.set, move.to, integer_at(answer->as_object(), "tokens"), clock_.now());
}

// Counts the tokens that a worker computed ahead, by its answer.
void PrefixMigrator::count(const bj::object& answer) {
  const int64_t tokens = integer_at(answer, "tokens");
  const int64_t cached = std::clamp<int64_t>(integer_at(answer, "cached_tokens"), 0, tokens);
  computed_tokens_.Increment(static_cast<double>(tokens - cached));
  cached_tokens_.Increment(static_cast<double>(cached));
}

void PrefixMigrator::end_leaving() {
  for (NodeIndex node = 0; node < fleet_.size(); ++node) {
    const route::Handover& handover = router_.handover();
    if (fleet_.leaving(node) && !handover.held(node) && handover.open_sets(node) == 0)
      fleet_.handover_done(node);
  }
}

void describe(SettingsSchema& schema, PrefixMigratorOptions& options) {
  schema
      .add("handover.deadline_secs", &options.deadline,
           "what of a worker's personas is not computed by then moves all the same")
      .range(1, 3600)
      .unit("seconds")
      .live();
}

}  // namespace troupe
