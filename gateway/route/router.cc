#include "gateway/route/router.h"

#include <algorithm>

#include "gateway/route/policy/fitting.h"

namespace troupe::route {
namespace {

// Step of the mean length of answers, per answer.
constexpr double kCompletionStep = 0.02;
// The same of conversations' lengths.
constexpr double kConversationStep = 0.02;
// Links of conversations remembered, by the anchors that learning what prompts share has.
constexpr size_t kLinksPerAnchor = 4;
// Assumed tokens of an answer before the first one.
constexpr int64_t kAnswerGuess = 128;

std::unique_ptr<RouterCore> new_core(const RouterOptions& options, std::shared_ptr<ExactResidency> shared) {
  const AffinityOptions& affinity = options.affinity;
  const MemoryOptions& memory = options.memory;
  const bool shares = shared != nullptr;
  ClusterState known{
      std::make_shared<ClusterView>(),
      std::make_shared<SetTable>(),
      LoadTracker(affinity),
      shares ? std::move(shared) : std::make_shared<ExactResidency>(memory.placements_per_node),
      ResidencyIndex(memory.placements_per_node),
      SetStats(memory.sets_max, affinity.share_half_life, affinity.share_tick),
      TokenRatio(),
      affinity.gateways,
      Handover(options.moves_at_once),
      PromptHistory(kLinksPerAnchor * options.sketch.anchors_max)};
  return std::make_unique<RouterCore>(RouterCore{options, std::move(known), shares});
}

// The request's set, and that many tokens of its conversation, on the node it was sent to.
Placement placement_of(const PrefixKey& key, const InFlight& sent, int64_t session_tokens) {
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
    : core_(new_core(options, std::move(shared))),
      options_(core_->options),
      known_(core_->known),
      random_(seed),
      policy_(make_policy(options.policy, options.affinity)),
      planning_(*core_),
      placements_(*core_),
      shared_prefixes_(options.sketch) {}

void Router::update_cluster(std::shared_ptr<const ClusterView> view) {
  const bool replaced = forget_replaced(*view);
  const bool moved = replaced || view->memberships() != known_.view->memberships();
  for (auto n = static_cast<NodeIndex>(known_.view->size()); n < view->size(); ++n)
    known_.shadow.set_budget(n, options_.memory.node_kv_tokens_guess);
  known_.view = std::move(view);
  known_.loads.update_cluster(*known_.view);
  policy_->update_cluster(*known_.view);
  if (moved) planning_.view_changed();
}

RequestTokens Router::tokens_of(const PrefixKey& key) const {
  return request_tokens(key, known_.ratio, known_.sets.tokens(key.set));
}

void Router::advance(TimePoint now) {
  known_.loads.advance(now);
  placements_.advance(now);
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
  for (size_t i = 0; i <= planning_.planner().sets_in_force(); ++i) {
    const Decision anew = decide(key, model, now);
    for (const Candidate& candidate : anew.order.all()) decision.order.push_back(candidate);
    decision.table_epoch = anew.table_epoch;
    if (decision.order.size() > before) return true;
    if (!planning_.leave_home(key.set, model, asked)) return false;
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
  keep_fitting(input, decision.order);
  return decision;
}

PolicyRequest Router::request_of(const PrefixKey& key, const InFlight& sent) const {
  return {sent.id, key, sent.node, sent.tokens, sent.expect_cached, 0};
}

InFlight Router::on_sent(const PrefixKey& key, std::string_view model, const Candidate& candidate,
                         TimePoint now, int64_t answers) {
  InFlight sent;
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
  sent.incarnation = sent.ticket.incarnation;
  sent.work_tokens = booking.work_tokens;
  known_.sets.note(key.set, model, sent.work_tokens, now);
  planning_.own().note(key.set, model, sent.work_tokens, now);
  if (sent.tokens.prefix_known) planning_.own().learn_tokens(key.set, sent.tokens.prefix);
  policy_->on_sent(request_of(key, sent), now);
  if (key.refined) shared_prefixes_.learn(key, now);
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

void Router::first_byte(const PrefixKey& key, InFlight& sent, TimePoint now) {
  known_.loads.first_byte(sent.ticket);
  if (sent.answered) return;
  sent.answered = true;
  if (same_incarnation(sent)) place(key, sent, now);
  policy_->first_byte(request_of(key, sent), now);
}

// Actual work of a request: 0 if no answer began; the estimate if the answer carried no counts.
int64_t Router::work_of(const InFlight& sent, const std::optional<AnswerCounts>& counts) const {
  if (!counts) return sent.answered ? sent.work_tokens : 0;
  const int64_t cached = counts->has_cached ? counts->cached_tokens : sent.expect_cached;
  return std::max<int64_t>(counts->prompt_tokens - cached, 0) + counts->completion_tokens;
}

void Router::on_finished(const PrefixKey& key, InFlight& sent, const std::optional<AnswerCounts>& counts,
                         TimePoint now) {
  if (counts && !sent.answered) first_byte(key, sent, now);
  known_.loads.close(sent.ticket);
  planning_.own().correct(key.set, work_of(sent, counts) - sent.work_tokens, now);
  PolicyRequest request = request_of(key, sent);
  if (counts) {
    request.completion_tokens = counts->completion_tokens;
    // (Of those, the bytes are the whole body's: tools, or a picture.)
    if (!key.others_only) known_.ratio.learn(key.prompt_bytes, counts->prompt_tokens);
    completion_mean_ += kCompletionStep * (static_cast<double>(counts->completion_tokens) - completion_mean_);
    // A first turn's hit is the prefix alone (and at most a block of what follows it).
    // (A plain text without a session does not say whether it is one.)
    const bool named = key.chat || !key.session.is_zero();
    const bool is_prefix = named && key.prefix_tokens == 0 && !sent.continued && counts->has_cached;
    // A node that never had the set may still share a few tokens of its template, and one that kept the
    // conversation through our restart shares more than the prefix: a count that the bytes cannot come to is
    // not the prefix's length.
    const int64_t guess = known_.ratio.tokens(key.prefix_bytes);
    const bool plausible = counts->cached_tokens * 3 >= guess && counts->cached_tokens <= guess * 3;
    if (is_prefix && counts->cached_tokens > 0 && plausible) {
      known_.sets.learn_tokens(key.set, counts->cached_tokens);
      sent.tokens.prefix = counts->cached_tokens;
    }
    sent.tokens.prompt = counts->prompt_tokens;
    known_.history.learn(key, sent.tokens, counts->completion_tokens);
    sent.tokens.prompt += counts->completion_tokens;
    const auto own = static_cast<double>(std::max<int64_t>(sent.tokens.prompt - sent.tokens.prefix, 0));
    known_.conversation_tokens += kConversationStep * (own - known_.conversation_tokens);
    if (same_incarnation(sent) && !key.session.is_zero()) {
      placements_.placed(placement_of(key, sent, sent.tokens.prompt), now);
    }
  }
  policy_->on_finished(request, now);
}

// Places what the node has now computed: the prompt, and soon an answer of about the usual length.
void Router::place(const PrefixKey& key, const InFlight& sent, TimePoint now) {
  const bool plain_text = !key.anchors.empty() && !key.chat && key.anchors.back().tokens == 0;
  if (key.session.is_zero() || plain_text) {
    // Workers report sets and sessions. The links of a prompt with neither are reported only where they carry
    // token counts (in a simulator); a live gateway only knows where it sent the prompt.
    const bool links_reported = !key.anchors.empty() && key.anchors.back().tokens > 0;
    if (placements_.relies_on_shadow(sent.node) || !links_reported) placements_.place_chain(key, sent.node);
  }
  const Placement placed =
      placement_of(key, sent, sent.tokens.prompt + static_cast<int64_t>(completion_mean_));
  if (placed.set.is_zero() && placed.session.is_zero()) return;
  placements_.placed(placed, now);
  if (placements_.relies_on_shadow(sent.node)) placements_.publish(placed);
}

std::vector<PeerLoad> Router::export_peer_loads(bool all) {
  std::vector<PeerLoad> changes;
  known_.loads.take_changes(changes, all);
  return changes;
}

std::vector<Router::NextHop> Router::next_hops(TimePoint now) const {
  absl::flat_hash_map<Hash128, std::string_view> models;
  for (const SetLoad& load : planning_.planner().common().loads.sets) models.emplace(load.set, load.model);
  std::vector<NextHop> next_hops;
  next_hops.reserve(known_.table->sets().size());
  for (const auto& [set, homes] : known_.table->sets()) {
    NextHop& hop = next_hops.emplace_back();
    hop.set = set;
    // Strict mode: many keys share the set, and only its homes may be asked.
    std::vector<NodeIndex> nodes(homes.nodes().begin(), homes.nodes().end());
    const auto model = models.find(set);
    if (known_.table->origin().strict_sets == 0 && model != models.end()) {
      PrefixKey key;
      key.set = set;
      key.prefix_tokens = key.prompt_tokens = std::max<int64_t>(known_.sets.tokens(set), 1);
      Random same = random_;
      nodes.clear();
      const Decision decision = choose(key, model->second, now, same);
      for (size_t i = 0; i < decision.order.size(); ++i) nodes.push_back(decision.order[i].node);
    }
    if (!nodes.empty()) hop.first = nodes[0];
    if (nodes.size() > 1) hop.second = nodes[1];
  }
  return next_hops;
}

void Router::report(NodeIndex node, const NodeReport& report, TimePoint now) {
  known_.loads.report(node, report, now);
  if (report.kv_tokens_total > 0) known_.shadow.set_budget(node, report.kv_tokens_total);
}

void Router::forget_node(NodeIndex node) {
  known_.handover.forget_node(node);
  known_.loads.forget_node(node);
  known_.shadow.drop_node(node);
  if (!core_->shares_exact) known_.exact->forget_node(node);
  policy_->forget_node(node);
}

}  // namespace troupe::route
