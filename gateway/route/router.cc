#include "gateway/route/router.h"

#include <algorithm>

namespace troupe::route {
namespace {

// Step of the mean length of answers, per answer.
constexpr double kCompletionStep = 0.02;
// Assumed tokens of an answer before the first one.
constexpr int64_t kAnswerGuess = 128;
// Remembered links of a request without a session, the deepest.
constexpr size_t kChainPlacedMax = 64;
// A worker reports what it computed within a step or two. Until then the next request must find it; what has
// not been reported by then was not kept.
constexpr auto kToldWithin = std::chrono::seconds(1);
constexpr size_t kUntoldMax = 65536;

ClusterState empty_cluster_state(const RouterOptions& options, std::shared_ptr<ExactResidency> exact) {
  const AffinityOptions& affinity = options.affinity;
  return {std::make_shared<ClusterView>(),
          std::make_shared<SetTable>(),
          LoadTracker(affinity),
          exact ? std::move(exact) : std::make_shared<ExactResidency>(options.memory.placements_per_node),
          ResidencyIndex(options.memory.placements_per_node),
          SetStats(options.memory.sets_max, affinity.share_half_life, affinity.share_tick),
          TokenRatio(),
          affinity.gateways,
          Handover(options.moves_at_once)};
}

// The request's set, and that many tokens of its conversation, on the node it was sent to.
Placement placement_of(const PrefixKey& key, const Sent& sent, int64_t session_tokens) {
  Placement placed;
  placed.node = sent.node;
  placed.set = key.set;
  placed.set_tokens = static_cast<uint32_t>(sent.tokens.prefix);
  if (key.session.is_zero()) return placed;
  placed.session = key.session;
  placed.session_tokens = static_cast<uint32_t>(session_tokens);
  placed.session_charge = placed.session_tokens - std::min(placed.session_tokens, placed.set_tokens);
  return placed;
}

}  // namespace

Router::Router(const RouterOptions& options, uint64_t seed, std::shared_ptr<ExactResidency> shared)
    : options_(options),
      random_(seed),
      shares_exact_(shared != nullptr),
      known_(empty_cluster_state(options, std::move(shared))),
      policy_(make_policy(options.policy, options.affinity)),
      planner_(options.planner, options.affinity.mode, options.name),
      others_loads_(3 * options.planner.tick + Gateways::kSilence),
      work_(options.memory.sets_max, options.planner.half_life, options.affinity.share_tick),
      plans_(!options.shared_table),
      sketch_(options.sketch) {}

void Router::adopt(std::shared_ptr<const ClusterView> view) {
  const bool replaced = forget_replaced(*view);
  const bool moved = replaced || view->memberships() != known_.view->memberships();
  for (auto n = static_cast<NodeIndex>(known_.view->size()); n < view->size(); ++n)
    known_.shadow.set_budget(n, options_.memory.node_kv_tokens_guess);
  known_.view = std::move(view);
  known_.loads.adopt(*known_.view);
  policy_->adopt(*known_.view);
  if (!moved) return;
  if (plans_) {
    known_.table = planner_.replace_gone(fleet());
    return;
  }
  known_.table = planner_.patch(fleet());
  // The new view may have a node that the table names.
  if (!planner_.common().partial) return;
  if (auto plan = decode_plan(message_, *known_.view); plan.ok())
    known_.table = planner_.follow(fleet(), *std::move(plan));
}

Planner::Fleet Router::fleet() {
  kv_tokens_.resize(known_.view->size());
  for (NodeIndex n = 0; n < kv_tokens_.size(); ++n) kv_tokens_[n] = known_.loads.at(n).report.kv_tokens_total;
  return {*known_.view, kv_tokens_};
}

void Router::plan(TimePoint now) {
  samples_work_ = true;
  if (work_.size() == 0 && others_loads_.empty()) return;  // the first sets are planned for at once
  if (planned_at_ != TimePoint{} && now < planned_at_ + options_.planner.tick) return;
  SetLoads loads = work_.loads();
  if (known_.gateways > 1 || options_.shared_table) {
    sample_ = loads;
    samples_ += 1;
  }
  if (known_.gateways > 1) {
    loads = others_loads_.sum(std::move(loads), now);
  }
  plan_from(std::move(loads), now);
}

void Router::plan(TimePoint now, SetLoads loads) {
  samples_work_ = false;
  plan_from(std::move(loads), now);
}

void Router::plan_from(SetLoads loads, TimePoint now) {
  planned_at_ = now;
  has_loads_ = !loads.sets.empty();
  plans_ = !options_.shared_table && gateways_.plans(news(), now);
  known_.table = plans_ ? planner_.plan(fleet(), std::move(loads)) : planner_.patch(fleet());
}

RequestTokens Router::tokens_of(const PrefixKey& key) const {
  return request_tokens(key, known_.ratio, known_.sets.tokens(key.set));
}

void Router::advance(TimePoint now) {
  known_.loads.advance(now);
  while (!untold_.empty() && untold_.front().until <= now) forget_untold();
}

Decision Router::decide(const PrefixKey& key, std::string_view model, TimePoint now) {
  advance(now);
  Decision decision = choose(key, model, now, random_);
  turn_ += 1;
  return decision;
}

bool Router::may_extend(const PrefixKey& key, const Decision& decision) const {
  return options_.affinity.mode == Mode::kStrict && policy_info(options_.policy).follows_table &&
         !key.set.is_zero() && !decision.order.empty() && decision.order.size() < options_.affinity.order_max;
}

bool Router::extend(const PrefixKey& key, std::string_view model, Decision& decision, TimePoint now) {
  if (!may_extend(key, decision)) return false;
  const size_t before = decision.order.size();
  absl::InlinedVector<NodeIndex, CandidateOrder::kMax> asked;
  for (const Candidate& candidate : decision.order.all()) asked.push_back(candidate.node);
  // It may have other homes already, added for another request that failed.
  for (size_t i = 0; i <= planner_.sets_in_force(); ++i) {
    const Decision anew = decide(key, model, now);
    for (const Candidate& candidate : anew.order.all()) decision.order.push_back(candidate);
    decision.table_epoch = anew.table_epoch;
    if (decision.order.size() > before) return true;
    if (!planner_.leave_home(fleet(), {key.set, model, asked, plans_})) return false;
    known_.table = planner_.table();
  }
  return false;
}

Decision Router::preview(const PrefixKey& key, std::string_view model, TimePoint now) {
  advance(now);
  Random same = random_;
  return choose(key, model, now, same);
}

Decision Router::choose(const PrefixKey& key, std::string_view model, TimePoint now, Random& random) const {
  Decision decision;
  decision.table_epoch = known_.table->epoch();
  decision.view_epoch = known_.view->epoch();
  const LoadTracker::Group* group = known_.loads.group(model);
  if (group == nullptr) return decision;
  const RequestTokens tokens = tokens_of(key);
  const PolicyInput input{known_, key, tokens, model, *group, now, turn_};
  decision.order = policy_->choose(input, random);
  return decision;
}

PolicyRequest Router::request_of(const PrefixKey& key, const Sent& sent) const {
  return {sent.id, key, sent.node, sent.tokens, sent.expect_cached, 0};
}

Sent Router::sent(const PrefixKey& key, std::string_view model, const Candidate& candidate, TimePoint now,
                  int64_t answers) {
  Sent sent;
  sent.node = candidate.node;
  sent.id = ++sent_count_;
  sent.tokens = tokens_of(key);
  sent.expect_cached = candidate.expect_cached;
  sent.continued = candidate.branch == Branch::kSession;
  LoadTracker::Booking booking;
  booking.pending_tokens = sent.tokens.prompt - sent.expect_cached;
  booking.work_tokens = booking.pending_tokens + answers * static_cast<int64_t>(completion_mean_);
  booking.answers = answers;
  booking.prompt_tokens = sent.tokens.prompt;
  sent.ticket = known_.loads.open(candidate.node, booking, now);
  sent.life = sent.ticket.life;
  sent.work_tokens = booking.work_tokens;
  known_.sets.note(key.set, model, sent.work_tokens, now);
  if (samples_work_) {
    work_.note(key.set, model, sent.work_tokens, now);
    if (sent.tokens.prefix_known) work_.learn_tokens(key.set, sent.tokens.prefix);
  }
  policy_->sent(request_of(key, sent), now);
  if (key.refined) sketch_.learn(key, now);
  return sent;
}

bool Router::at_home(const PrefixKey& key, std::string_view model, NodeIndex node) const {
  if (key.set.is_zero()) return false;
  const Homes* homes = known_.table->find(key.set, model);
  return homes != nullptr && homes->contains(node);
}

int64_t Router::usual_answer_tokens() const {
  return completion_mean_ > 0 ? std::max<int64_t>(static_cast<int64_t>(completion_mean_), 1) : kAnswerGuess;
}

void Router::first_byte(const PrefixKey& key, Sent& sent, TimePoint now) {
  known_.loads.first_byte(sent.ticket);
  if (sent.answered) return;
  sent.answered = true;
  if (same_life(sent)) place(key, sent, now);
  policy_->first_byte(request_of(key, sent), now);
}

// Actual work of a request: 0 if no answer began; the estimate if the answer carried no counts.
int64_t Router::work_of(const Sent& sent, const std::optional<AnswerCounts>& counts) const {
  if (!counts) return sent.answered ? sent.work_tokens : 0;
  const int64_t cached = counts->has_cached ? counts->cached_tokens : sent.expect_cached;
  return std::max<int64_t>(counts->prompt_tokens - cached, 0) + counts->completion_tokens;
}

void Router::finished(const PrefixKey& key, Sent& sent, const std::optional<AnswerCounts>& counts,
                      TimePoint now) {
  if (counts && !sent.answered) first_byte(key, sent, now);
  known_.loads.close(sent.ticket);
  if (samples_work_) work_.correct(key.set, work_of(sent, counts) - sent.work_tokens, now);
  PolicyRequest request = request_of(key, sent);
  if (counts) {
    request.completion_tokens = counts->completion_tokens;
    known_.ratio.learn(key.prompt_bytes, counts->prompt_tokens);
    completion_mean_ += kCompletionStep * (static_cast<double>(counts->completion_tokens) - completion_mean_);
    // A first turn's hit is the prefix alone (and at most a block of what follows it).
    const bool told = key.prefix_tokens == 0 && !sent.continued && counts->has_cached;
    // A node that never had the set may still share a few tokens of its template, and one that kept the
    // conversation through our restart shares more than the prefix: a count that the bytes cannot come to is
    // not the prefix's length.
    const int64_t guess = known_.ratio.tokens(key.prefix_bytes);
    const bool plausible = counts->cached_tokens * 3 >= guess && counts->cached_tokens <= guess * 3;
    if (told && counts->cached_tokens > 0 && plausible) {
      known_.sets.learn_tokens(key.set, counts->cached_tokens);
      sent.tokens.prefix = counts->cached_tokens;
    }
    sent.tokens.prompt = counts->prompt_tokens + counts->completion_tokens;
    if (same_life(sent) && !key.session.is_zero()) {
      remember_own(placement_of(key, sent, sent.tokens.prompt), now);
    }
  }
  policy_->finished(request, now);
}

// Places what the node has now computed: the prompt, and soon an answer of about the usual length.
void Router::place(const PrefixKey& key, const Sent& sent, TimePoint now) {
  if (key.session.is_zero()) {
    // Workers report sets and sessions. The links of a prompt with neither are reported only where they carry
    // token counts (in a simulator); a live gateway only knows where it sent the prompt.
    const bool links_told = !key.anchors.empty() && key.anchors.back().tokens > 0;
    if (relies_on_shadow(sent.node) || !links_told) place_chain(key, sent.node);
  }
  const Placement placed =
      placement_of(key, sent, sent.tokens.prompt + static_cast<int64_t>(completion_mean_));
  if (placed.set.is_zero() && placed.session.is_zero()) return;
  remember_own(placed, now);
  if (relies_on_shadow(sent.node)) tell(placed);
}

// On a node with a residency feed, a placement bridges the time until the worker reports it.
void Router::remember_own(Placement placed, TimePoint now) {
  if (relies_on_shadow(placed.node)) return remember(placed);
  if (shares_exact_) return;  // its owner applies events as they happen
  if (known_.exact->index.tokens(placed.set, placed.node) > 0) placed.set = {};
  remember(placed);
  for (const Hash128& key : {placed.set, placed.session}) {
    if (!key.is_zero()) untold_.push_back({now + kToldWithin, key, placed.node});
  }
  while (untold_.size() > kUntoldMax) forget_untold();
}

void Router::forget_untold() {
  const Untold& oldest = untold_.front();
  if (!relies_on_shadow(oldest.node)) known_.shadow.drop(oldest.key, oldest.node);
  untold_.pop_front();
}

// A request without a session is remembered by its prompt's links.
void Router::place_chain(const PrefixKey& key, NodeIndex node) {
  std::span<const Anchor> chain = chain_of(key);
  int64_t before = key.prefix_tokens > 0 ? key.prefix_tokens : known_.ratio.tokens(key.prefix_bytes);
  if (chain.size() > kChainPlacedMax) {
    before = anchor_tokens(chain[chain.size() - kChainPlacedMax - 1], known_.ratio);
    chain = chain.last(kChainPlacedMax);
  }
  for (const Anchor& anchor : chain) {
    Placement placed;
    placed.node = node;
    placed.session = anchor.hash;
    const int64_t tokens = anchor_tokens(anchor, known_.ratio);
    placed.session_tokens = static_cast<uint32_t>(tokens);
    placed.session_charge = static_cast<uint32_t>(std::max<int64_t>(tokens - before, 0));
    before = tokens;
    remember(placed);
    tell(placed);
  }
}

void Router::tell(const Placement& placement) {
  if (known_.gateways <= 1 || options_.affinity.mode == Mode::kPlan) return;
  if (outbox_.size() >= options_.memory.outbox_max) {  // nothing drains it: half goes at once, not one by one
    const size_t half = outbox_.size() / 2 + 1;
    outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<long>(std::min(half, outbox_.size())));
    placements_dropped_ += half;
  }
  outbox_.push_back(placement);
}

std::vector<Placement> Router::take_placements() {
  std::vector<Placement> taken;
  taken.swap(outbox_);
  return taken;
}

void Router::adopt_placements(std::span<const Placement> placements) {
  for (const Placement& p : placements) {
    if (relies_on_shadow(p.node)) remember(p);
  }
}

// Puts the set after its session: used last, it is forgotten after what needs it.
void Router::remember(const Placement& p) {
  if (!known_.view->routable(p.node)) return;
  if (!p.session.is_zero())
    known_.shadow.put({p.session, Held::kSession, p.node, p.session_tokens, p.session_charge});
  if (!p.set.is_zero()) known_.shadow.put({p.set, Held::kSet, p.node, p.set_tokens, p.set_tokens});
}

FeedResult Router::residency(NodeIndex node, const ResidencyEvent& event) {
  const bool guessed = relies_on_shadow(node);
  const FeedResult result = known_.exact->apply(node, event);
  if (relies_on_shadow(node)) return result;
  if (guessed) {  // the feed replaces what was guessed
    known_.shadow.drop_node(node);
  } else {
    for (const ResidencyItem& item : event.items) known_.shadow.drop(item.key, node);
  }
  return result;
}

std::vector<PeerLoad> Router::take_ledger(bool all) {
  std::vector<PeerLoad> changes;
  known_.loads.take_changes(changes, all);
  return changes;
}

void Router::report(NodeIndex node, const NodeReport& report, TimePoint now) {
  known_.loads.report(node, report, now);
  if (report.kv_tokens_total > 0) known_.shadow.set_budget(node, report.kv_tokens_total);
}

void Router::forget_node(NodeIndex node) {
  known_.handover.forget_node(node);
  known_.loads.forget_node(node);
  known_.shadow.drop_node(node);
  if (!shares_exact_) known_.exact->forget_node(node);
  policy_->forget_node(node);
}

}  // namespace troupe::route
