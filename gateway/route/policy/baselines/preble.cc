#include "gateway/route/policy/baselines/preble.h"

#include <algorithm>
#include <utility>

namespace troupe::route {
namespace {

constexpr Duration kWindow = std::chrono::minutes(3);
constexpr Duration kRebalanceEvery = std::chrono::milliseconds(100);
constexpr uint64_t kRebalanceFrom = 50;  // requests a node
constexpr double kHighLoad = 1.5;
constexpr double kTtftRatio = 2;
constexpr double kAnswerTokens = 45;
constexpr double kFirstSecondsPerToken = 0.15;
constexpr double kMeanStep = 1.0 / 200;  // the original keeps the last 200
constexpr double kPrefillTokensPerSecond = 8'300;
constexpr size_t kTreeLinksMax = size_t{1} << 20;
constexpr size_t kWindowMax = size_t{1} << 20;  // requests remembered

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

int64_t half_of(TimePoint now) {
  return now.time_since_epoch() / (kWindow / 2);
}

template <typename Nodes>
bool contains(const Nodes& nodes, NodeIndex node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

PreblePolicy::PreblePolicy(const AffinityOptions& options) : options_(options), links_(kTreeLinksMax) {}

void PreblePolicy::update_cluster(const ClusterView& view) {
  cost_.resize(view.size(), 0);
  per_token_.resize(view.size(), kFirstSecondsPerToken);
  incarnation_.resize(view.size(), 0);
  routable_.assign(view.size(), false);
  for (NodeIndex n = 0; n < view.size(); ++n) routable_[n] = view.routable(n);
}

const PreblePolicy::Part* PreblePolicy::find(PartId id) const {
  const auto it = parts_.find(id);
  return it == parts_.end() ? nullptr : &it->second;
}

PreblePolicy::Here& PreblePolicy::here_of(Part& part, NodeIndex node) {
  for (Here& h : part.here) {
    if (h.node == node) return h;
  }
  part.here.push_back(Here{});
  part.here.back().node = node;
  return part.here.back();
}

// The nodes of a link: a part that moves takes the links below it along.
PreblePolicy::NodeSet PreblePolicy::nodes_of(const Link& link, const Part& part) {
  if (link.own) return part.nodes;
  return link.moves == part.moves ? link.nodes : NodeSet{part.moved_to};
}

PreblePolicy::Match PreblePolicy::match(const PromptLinks& links) const {
  Match match;
  const Link* deepest = nullptr;
  for (const PromptLink& link : links) {
    const Link* found = links_.find(link.hash);
    if (found == nullptr) break;
    match.tokens = std::min(found->tokens, link.tokens);
    const Part* part = find(found->part);
    if (part == nullptr || part->nodes.empty()) continue;
    match.part = found->part;
    deepest = found;
  }
  if (deepest != nullptr) match.nodes = nodes_of(*deepest, *find(match.part));
  return match;
}

CandidateOrder PreblePolicy::choose(const PolicyInput& input, Random& random) const {
  const Match known = match(prompt_links(input.key, input.tokens));
  const bool exploit = 2 * known.tokens > input.tokens.prompt;
  const auto within = [&](NodeIndex node) {
    return !exploit || known.nodes.empty() || contains(known.nodes, node);
  };
  // A node outside the set comes last, after all inside it.
  constexpr double kOutside = 1e9;
  return order_by_cost(input, options_.order_max, random_start(input, random),
                       [&](NodeIndex node, const CachedPrefix::Here&) {
                         return (node < cost_.size() ? cost_[node] : 0) + (within(node) ? 0 : kOutside);
                       });
}

double PreblePolicy::cost_of(const Part& part, NodeIndex node) const {
  double active = 0;
  for (const Here& h : part.here) {
    if (h.node == node) active = static_cast<double>(h.active);
  }
  double cost = active * kAnswerTokens * per_token_[node];
  if (part.prompt_tokens > 0 && !part.nodes.empty()) {
    const double missed = 1 - static_cast<double>(part.hit_tokens) / static_cast<double>(part.prompt_tokens);
    cost += missed * static_cast<double>(part.requests) * static_cast<double>(part.tokens) /
            kPrefillTokensPerSecond / static_cast<double>(part.nodes.size());
  }
  return cost;
}

void PreblePolicy::book(const Part& part, double sign) {
  for (const NodeIndex n : part.nodes) cost_[n] += sign * cost_of(part, n);
}

template <typename Change>
void PreblePolicy::change(Part& part, Change&& change) {
  book(part, -1);
  change();
  book(part, 1);
}

// The part a request counts for: the known one where most of its prompt is known, else its own new one.
PreblePolicy::PartId PreblePolicy::part_of(const PolicyRequest& request, const PromptLinks& links) {
  const Match known = match(links);
  const bool exploit = 2 * known.tokens > request.tokens.prompt;
  PartId id = exploit ? known.part : kNoPart;
  if (id == kNoPart) {
    id = ++last_part_ == kNoPart ? ++last_part_ : last_part_;
    Part part;
    part.tokens = exploit ? known.tokens : request.tokens.prompt - known.tokens;
    parts_[id] = part;
    // An exploring node joins the sets above, unless what is shared with them is a small part of theirs.
    Part* above = exploit ? nullptr : find(known.part);
    if (above != nullptr && 2 * known.tokens > above->tokens && !contains(above->nodes, request.node))
      change(*above, [&] { above->nodes.push_back(request.node); });
  }
  bool met_unknown = false;
  for (const PromptLink& link : links) {
    met_unknown |= links_.find(link.hash) == nullptr;
    Link& kept = links_.touch(link.hash);
    if (met_unknown || find(kept.part) == nullptr) {
      kept.part = id;
      kept.own = !exploit;
      kept.nodes.clear();
      kept.moves = find(id)->moves;
    }
    kept.tokens = link.tokens;
    join(kept, request.node);
  }
  return id;
}

void PreblePolicy::join(Link& link, NodeIndex node) {
  if (link.own) return;
  const Part& part = *find(link.part);
  if (link.moves != part.moves) link.nodes.assign(1, part.moved_to);
  link.moves = part.moves;
  if (!contains(link.nodes, node)) link.nodes.push_back(node);
}

void PreblePolicy::on_sent(const PolicyRequest& request, TimePoint now) {
  if (request.node >= cost_.size()) return;  // of no known cluster
  sent_count_ += 1;
  expire(now);
  const PromptLinks links = prompt_links(request.key, request.tokens);
  const int64_t hit = std::min(match(links).tokens, request.tokens.prompt);
  const PartId id = part_of(request, links);
  Part& part = *find(id);
  change(part, [&] {
    if (!contains(part.nodes, request.node)) part.nodes.push_back(request.node);
    part.requests += 1;
    part.hit_tokens += hit;
    part.prompt_tokens += request.tokens.prompt;
    here_of(part, request.node).active += 1;
  });
  window_.push_back(Event{now, id, request.tokens.prompt, hit});
  Flight flight;
  flight.part = id;
  flight.node = request.node;
  flight.incarnation = incarnation_[request.node];
  flight.sent_at = now;
  flights_.emplace(request.id, flight);
  if (sent_count_ >= kRebalanceFrom * cost_.size() && now >= balanced_at_ + kRebalanceEvery) rebalance(now);
}

void PreblePolicy::first_byte(const PolicyRequest& request, TimePoint now) {
  const auto it = flights_.find(request.id);
  if (it == flights_.end()) return;
  it->second.first_at = now;
  Part* part = find(it->second.part);
  if (part == nullptr) return;
  Here& here = here_of(*part, it->second.node);
  const int64_t half = half_of(now);
  if (half != here.half) {
    here.ttft[0] = half == here.half + 1 ? here.ttft[1] : Half{};
    here.ttft[1] = Half{};
    here.half = half;
  }
  here.ttft[1].sum += seconds(now - it->second.sent_at);
  here.ttft[1].count += 1;
}

void PreblePolicy::on_finished(const PolicyRequest& request, TimePoint now) {
  const auto it = flights_.find(request.id);
  if (it == flights_.end()) return;
  const Flight flight = it->second;
  flights_.erase(it);
  Part* part = find(flight.part);
  if (part != nullptr && flight.incarnation == incarnation_[flight.node]) {
    change(*part, [&] { here_of(*part, flight.node).active -= 1; });
  }
  // A node's time per token is in all its parts' costs: they are summed anew with the next rebalancing.
  if (request.completion_tokens > 1 && flight.first_at != TimePoint{}) {
    const double each = seconds(now - flight.first_at) / static_cast<double>(request.completion_tokens - 1);
    double& mean = per_token_[flight.node];
    mean = mean == kFirstSecondsPerToken ? each : mean + kMeanStep * (each - mean);
  }
}

void PreblePolicy::expire(TimePoint now) {
  while (!window_.empty() && (window_.front().at + kWindow < now || window_.size() > kWindowMax)) {
    const Event event = window_.front();
    window_.pop_front();
    Part* part = find(event.part);
    if (part == nullptr) continue;
    change(*part, [&] {
      part->requests -= 1;
      part->hit_tokens -= event.hit_tokens;
      part->prompt_tokens -= event.prompt_tokens;
    });
    if (part->requests > 0) continue;
    book(*part, -1);
    parts_.erase(event.part);  // its links find no part, so the next request makes one
  }
}

std::vector<double> PreblePolicy::costs() const {
  std::vector<double> cost(cost_.size(), 0);
  for (const auto& [id, part] : parts_) {
    for (const NodeIndex n : part.nodes) cost[n] += cost_of(part, n);
  }
  return cost;
}

void PreblePolicy::rebalance(TimePoint now) {
  balanced_at_ = now;
  cost_ = costs();  // also drops accumulated rounding errors
  std::vector<double> cost(cost_.size(), 0);
  for (const auto& [id, part] : parts_) {
    if (part.requests < 2) continue;
    for (const NodeIndex n : part.nodes) cost[n] += cost_of(part, n);
  }
  std::vector<NodeIndex> nodes;
  for (NodeIndex n = 0; n < cost.size(); ++n) {
    if (routable_[n]) nodes.push_back(n);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [&](NodeIndex a, NodeIndex b) { return cost[a] > cost[b]; });
  // The dearest with the cheapest, then the next dear one, the cheapest staying the same as it fills.
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    if (cost[nodes[i]] < kHighLoad * cost[nodes.back()]) break;
    level(nodes[i], nodes.back(), cost);
  }
}

void PreblePolicy::level(NodeIndex dear, NodeIndex cheap, std::vector<double>& cost) {
  struct Movable {
    double cost;
    Part* part;
  };
  std::vector<Movable> parts;
  for (auto& [id, part] : parts_) {
    if (part.requests > 1 && contains(part.nodes, dear)) parts.push_back(Movable{cost_of(part, dear), &part});
  }
  if (parts.size() == 1) {
    Part& part = *parts.front().part;
    if (contains(part.nodes, cheap) || !overloaded(part, dear, half_of(balanced_at_))) return;
    cost[dear] -= parts.front().cost / 2;
    cost[cheap] += parts.front().cost / 2;
    change(part, [&] { part.nodes.push_back(cheap); });
    here_of(part, dear).ttft = {};
    return;
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Movable& a, const Movable& b) { return a.cost < b.cost; });
  for (const Movable& movable : parts) {
    if (cost[dear] - movable.cost < cost[cheap] + movable.cost) break;
    cost[dear] -= movable.cost;
    cost[cheap] += movable.cost;
    change(*movable.part, [&] { movable.part->nodes.assign(1, cheap); });
    movable.part->moves += 1;
    movable.part->moved_to = cheap;
    if (cost[dear] < kHighLoad * cost[cheap]) break;
  }
}

bool PreblePolicy::overloaded(const Part& part, NodeIndex node, int64_t half) const {
  for (const Here& h : part.here) {
    if (h.node == node)
      return h.half == half && h.ttft[0].count > 0 && h.ttft[1].mean() >= kTtftRatio * h.ttft[0].mean();
  }
  return false;
}

void PreblePolicy::forget_node(NodeIndex node) {
  if (node >= cost_.size()) return;
  incarnation_[node] += 1;
  per_token_[node] = kFirstSecondsPerToken;
  for (auto& [id, part] : parts_) {
    const auto at = std::find(part.nodes.begin(), part.nodes.end(), node);
    if (at != part.nodes.end()) part.nodes.erase(at);
    const auto here =
        std::find_if(part.here.begin(), part.here.end(), [&](const Here& h) { return h.node == node; });
    if (here != part.here.end()) part.here.erase(here);
  }
  cost_ = costs();
}

std::unique_ptr<RoutePolicy> make_preble(const AffinityOptions& options) {
  return std::make_unique<PreblePolicy>(options);
}

}  // namespace troupe::route
