#include "gateway/route/policy/affinity.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::route {
namespace {

// Homes a request looks at, of a table's entry with more.
constexpr size_t kHomesLooked = 32;
constexpr size_t kCandidatesMax = 80;
constexpr size_t kHoldersNoted = 64;

}  // namespace

// State of one decision.
class AffinityPolicy::Choice {
 public:
  Choice(const AffinityOptions& options, const PolicyInput& input, Scratch& scratch, Random& random)
      : options_(options),
        in_(input),
        resident_(input.known, input.key, input.tokens),
        means_(input.known.loads.means(input.group)),
        scratch_(scratch),
        random_(random) {
    const auto nodes = static_cast<double>(in_.group.nodes.size());
    const auto holders = static_cast<double>(std::max<size_t>(resident_.set_holders(), 1));
    nothing_ = options_.noise_common_tokens;
    if (!in_.key.set.is_zero()) {
      const auto own = static_cast<double>(in_.tokens.prefix);
      nothing_ = std::min(nothing_, static_cast<int64_t>(options_.noise_common_share * own));
    }
    hot_ =
        !in_.key.set.is_zero() && in_.known.sets.share(in_.key.set) * nodes * options_.hot_factor > holders;
    if (scratch_.nodes.size() < in_.known.view->size()) scratch_.nodes.resize(in_.known.view->size());
    if (++scratch_.decision == 0) {
      std::fill(scratch_.nodes.begin(), scratch_.nodes.end(), Noted{});
      scratch_.decision = 1;
    }
    note_resident();
  }

  CandidateOrder order(bool by_plan) {
    by_plan_ = by_plan;
    if (options_.mode == Mode::kStrict && !in_.key.set.is_zero()) {
      look_up_homes();
      for (const NodeIndex n : homes_) add(n);
    } else {
      if (by_plan_) look_up_homes();
      gather();
    }
    // Equal costs are ordered at random, by shuffling the candidates first.
    for (size_t i = count_; i > 1; --i)
      std::swap(nodes_[i - 1], nodes_[random_.below(static_cast<uint32_t>(i))]);
    some_silent_ = std::any_of(nodes_.begin(), nodes_.begin() + count_,
                               [this](NodeIndex node) { return !in_.known.exact->feeds.in_step(node); });
    for (size_t i = 0; i < count_; ++i) candidates_.push_back(weighed(nodes_[i]));
    if (!by_plan_ && options_.evict_weight > 0) weigh_room();
    return order_of(candidates_, options_.order_max);
  }

 private:
  void gather() {
    const auto& nodes = in_.group.nodes;
    if (nodes.size() <= options_.scan_max) {
      for (const NodeIndex n : nodes) add(n);
      return;
    }
    for (const auto& holders : {resident_.session_exact(), resident_.session_shadow(), resident_.chain()})
      add_some(holders, [](const Holder&) {});
    for (const auto& holders : {resident_.set_exact(), resident_.set_shadow()}) {
      add_some(holders, [this](const Holder& h) {
        noted(h.node).set_tokens = h.tokens;
        noted(h.node).set_known = true;
      });
    }
    if (by_plan_)
      for (const NodeIndex n : homes_) add(n);
    std::array<uint32_t, 16> least{};
    const size_t wanted = std::min(options_.least_loaded, least.size());
    const size_t found = in_.group.least.find({least.data(), wanted}, random_);
    for (size_t i = 0; i < found; ++i) add(nodes[least[i]]);
    for (size_t i = 0; i < options_.sampled; ++i)
      add(nodes[random_.below(static_cast<uint32_t>(nodes.size()))]);
  }

  // Adds all of a short list; of a long one a random stretch.
  template <typename OnAdded>
  void add_some(std::span<const Holder> holders, OnAdded&& on_added) {
    const size_t size = holders.size();
    const size_t most = options_.holders_max;
    const size_t start = size <= most ? 0 : random_.below(static_cast<uint32_t>(size));
    for (size_t i = 0; i < std::min(size, most); ++i) {
      const Holder& h = holders[start + i < size ? start + i : start + i - size];
      if (add(h.node)) on_added(h);
    }
  }

  Noted& noted(NodeIndex node) {
    Noted& noted = scratch_.nodes[node];
    if (noted.decision != scratch_.decision) {
      noted = Noted{};
      noted.decision = scratch_.decision;
    }
    return noted;
  }

  // Scans short lists of holders once, instead of searching them for every candidate.
  void note_resident() {
    for (const auto& holders : {resident_.set_exact(), resident_.set_shadow()})
      sets_noted_ &= note(holders, &Noted::set_tokens);
    for (const auto& holders : {resident_.session_exact(), resident_.session_shadow(), resident_.chain()})
      sessions_noted_ &= note(holders, &Noted::session_tokens);
  }

  bool note(std::span<const Holder> holders, uint32_t Noted::*tokens) {
    if (holders.size() > kHoldersNoted) return false;
    for (const Holder& h : holders) {
      if (h.node >= scratch_.nodes.size()) continue;  // not in the view yet
      Noted& its = noted(h.node);
      its.*tokens = std::max(its.*tokens, h.tokens);
    }
    return true;
  }

  // True if it is a new candidate.
  bool add(NodeIndex node) {
    // It may not serve the model, or no longer.
    if (count_ == kCandidatesMax || !in_.known.loads.in_group(in_.group, node)) return false;
    Noted& its = noted(node);
    if (its.taken) return false;
    its.taken = true;
    nodes_[count_++] = node;
    return true;
  }

  CachedPrefix::Here here_at(NodeIndex node) {
    if (!sessions_noted_) return resident_.at(node);
    const Noted& its = noted(node);
    const bool known = sets_noted_ || its.set_known;
    return resident_.count(node, known ? its.set_tokens : resident_.set_tokens(node), its.session_tokens);
  }

  // Finds the set's homes that can be sent to, and this conversation's own among them. Of very many homes it
  // takes a window chosen by the conversation, which so finds its home again.
  void look_up_homes() {
    homes_.clear();
    if (in_.key.set.is_zero()) return;
    if (const Homes* planned = in_.known.table->find(in_.key.set, in_.model); planned != nullptr) {
      std::span<const NodeIndex> window = planned->nodes();
      if (window.size() > kHomesLooked)
        window = window.subspan(in_.key.session.hi % (window.size() - kHomesLooked + 1), kHomesLooked);
      // During a handover only homes that already hold the set count.
      const NodeIndex draining_holder = in_.known.handover.draining_holder(in_.key.set);
      for (const NodeIndex n : window) {
        const bool has_it = draining_holder == kNoNode || resident_.set_tokens(n) > 0;
        if (has_it && in_.known.loads.in_group(in_.group, n)) homes_.push_back(n);
      }
      if (draining_holder != kNoNode && in_.known.loads.in_group(in_.group, draining_holder))
        homes_.push_back(draining_holder);
    }
    // Without a plan yet: the home that rendezvous will plan.
    if (homes_.empty() && options_.mode != Mode::kStrict)
      homes_.push_back(rendezvous_best(in_.key.set, *in_.known.view, in_.group.nodes));
    if (!in_.key.session.is_zero()) session_home_ = rendezvous_best(in_.key.session, *in_.known.view, homes_);
  }

  Candidate weighed(NodeIndex node) {
    CachedPrefix::Here here = here_at(node);
    const bool home = by_plan_ && std::find(homes_.begin(), homes_.end(), node) != homes_.end();
    if (home) believe_plan(node, here);
    Branch branch = hot_ ? Branch::kNewCopy : Branch::kLeast;
    if (home || here.set_tokens > 0) branch = Branch::kHome;
    if (here.session) branch = Branch::kSession;
    Candidate c = plain_candidate(in_, node, branch, here.expected);
    // A conversation without a set is not moved: it ends where it is.
    if (here.session && in_.key.set.is_zero()) c.suspect = in_.known.loads.suspect(node);
    c.miss = static_cast<double>(in_.tokens.prompt - here.cached);
    const int64_t lacking = in_.tokens.prefix - here.set_tokens;
    cached_.push_back(here.cached);
    lacking_.push_back(lacking > in_.known.loads.block_tokens(node) ? lacking : 0);
    if (hot_ && lacking_.back() > 0)
      c.miss -= options_.hot_discount * means_.busy * static_cast<double>(lacking);
    c.load = in_.known.loads.cost(means_, node);
    // A worker lets short prompts pass long ones: a request that lacks little there waits little.
    c.load.pending = std::min(c.load.pending, static_cast<double>(in_.tokens.prompt - here.cached));
    if (!by_plan_ && here.cached <= nothing_) c.noise = noise(node);
    c.cost = c.miss + c.load.total() + c.noise;
    if (by_plan_ && node == session_home_) c.cost -= options_.plan_home_tokens;
    return c;
  }

  // Room for KV. A conversation that fits nowhere evicts wherever it goes, and nothing is added. Else what it
  // would evict counts as computed anew; and where every holder of a hot set is short of room, its next copy
  // costs little, as its conversations will follow it there. The room of a node that joins counts as its
  // share rises, else all would go there at once.
  void weigh_room() {
    const auto usual = static_cast<int64_t>(in_.known.conversation_tokens);
    const int64_t expected = std::max(in_.tokens.prompt, in_.tokens.prefix + usual);
    absl::InlinedVector<double, 24> evicts, shares;
    double most_room = 0, most_evicted = 0, holders_short = 1, least_needs = static_cast<double>(expected);
    double weight_max = 0;
    for (const Candidate& c : candidates_)
      weight_max = std::max(weight_max, in_.known.view->node(c.node).weight);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& c = candidates_[i];
      const auto room = in_.known.kv_room(c.node);
      if (!room) return;
      const int64_t needs = std::max<int64_t>(expected - cached_[i], 1);
      least_needs = std::min(least_needs, static_cast<double>(needs));
      evicts.push_back(static_cast<double>(std::max<int64_t>(needs - *room, 0)));
      most_evicted = std::max(most_evicted, evicts[i]);
      shares.push_back(weight_max > 0 ? in_.known.view->node(c.node).weight / weight_max : 1);
      if (!c.suspect && !c.overloaded)
        most_room = std::max(most_room, shares[i] * static_cast<double>(*room));
      if (lacking_[i] == 0) holders_short = std::min(holders_short, evicts[i] / static_cast<double>(needs));
    }
    const double roomy = std::min(1.0, most_room / (options_.evict_room * least_needs));
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& c = candidates_[i];
      c.evict = options_.evict_weight * roomy * std::lerp(most_evicted, evicts[i], shares[i]);
      c.cost += c.evict;
      if (!hot_ || lacking_[i] == 0 || evicts[i] > 0) continue;
      const double more = std::max(roomy * holders_short - means_.busy, 0.0);
      const double saved = shares[i] * options_.hot_discount * more * static_cast<double>(lacking_[i]);
      c.miss -= saved;
      c.cost -= saved;
    }
  }

  // Where some workers report no residency a persona that none is known to hold goes by rendezvous among all:
  // the noise is drawn from its name, so that a gateway that begins again, or another one, chooses alike.
  double noise(NodeIndex node) {
    const Hash128& name = in_.key.set.is_zero() ? in_.key.session : in_.key.set;
    const bool unreported = some_silent_ && !resident_.known() && !name.is_zero();
    if (in_.known.gateways <= 1 && !unreported) return 0;
    const double most = options_.noise_tokens * in_.known.loads.scale();
    if (in_.key.displaced) return options_.displaced_noise * most * random_.unit();
    if (!unreported) return most * random_.unit();
    const double draw = rendezvous_draw(name.lo, in_.known.view->node(node).hash.lo);
    const double weight = in_.known.view->node(node).weight;
    return most * (1 - (in_.known.view->equal_weights() ? draw : std::pow(draw, 1 / weight)));
  }

  // Adds what the plan says is there; this gateway's own placements count where they say more.
  void believe_plan(NodeIndex node, CachedPrefix::Here& here) const {
    here.set_tokens = std::max(here.set_tokens, in_.tokens.prefix);
    here.cached = std::max(here.cached, in_.tokens.prefix);
    here.expected = std::max(here.expected, in_.tokens.prefix);
    if (node == session_home_ && in_.tokens.history > 0 && !resident_.session_known()) {
      here.cached = std::max(here.cached, in_.tokens.history);
      here.expected = std::max(here.expected, in_.tokens.history);
      here.session = true;
    }
    here.cached = std::min(here.cached, in_.tokens.prompt - 1);
    here.expected = std::min(here.expected, in_.tokens.prompt - 1);
  }

  const AffinityOptions& options_;
  const PolicyInput& in_;
  const CachedPrefix resident_;
  const LoadTracker::Means means_;
  Scratch& scratch_;
  Random& random_;
  int64_t nothing_ = 0;  // a node with no more than this holds nothing of the request's own
  bool hot_ = false;
  bool some_silent_ = false;  // of the candidates: they report no residency
  bool by_plan_ = false;
  bool sets_noted_ = true;
  bool sessions_noted_ = true;
  absl::InlinedVector<NodeIndex, 16> homes_;
  NodeIndex session_home_ = kNoNode;
  std::array<NodeIndex, kCandidatesMax> nodes_;
  size_t count_ = 0;
  absl::InlinedVector<Candidate, 24> candidates_;
  absl::InlinedVector<int64_t, 24> cached_;   // by candidate
  absl::InlinedVector<int64_t, 24> lacking_;  // of the set's prefix, by candidate; 0: it is there
};

AffinityPolicy::AffinityPolicy(const AffinityOptions& options) : options_(options) {}

CandidateOrder AffinityPolicy::choose(const PolicyInput& input, Random& random) const {
  return Choice(options_, input, scratch_, random).order(options_.mode == Mode::kPlan);
}

}  // namespace troupe::route
