#include "gateway/route/rival_preble.h"

#include <algorithm>
#include <utility>

namespace troupe::route {
namespace {

constexpr Duration kWindow = std::chrono::minutes(3);
constexpr Duration kRebalanceEvery = std::chrono::milliseconds(100);
constexpr uint64_t kRebalanceFrom = 50;  // requests
constexpr double kHighLoad = 1.5;
constexpr double kTtftRatio = 2;
constexpr double kFirstAnswerTokens = 45;
constexpr double kFirstSecondsPerToken = 0.15;
constexpr double kMeanStep = 1.0 / 200;  // the original keeps the last 200
constexpr double kPrefillTokensPerSecond = 30'000;
constexpr size_t kTreeLinksMax = size_t{1} << 20;
constexpr size_t kWindowMax = size_t{1} << 20;  // requests remembered

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

int64_t half_of(TimePoint now) {
  return now.time_since_epoch() / (kWindow / 2);
}

}  // namespace

PreblePolicy::PreblePolicy(const AffinityOptions& options) : options_(options), links_(kTreeLinksMax) {}

void PreblePolicy::adopt(const ClusterView& view) {
  cost_.resize(view.size(), 0);
  per_token_.resize(view.size(), kFirstSecondsPerToken);
  life_.resize(view.size(), 0);
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

PreblePolicy::Match PreblePolicy::match(const PromptLinks& links) const {
  Match match;
  for (const PromptLink& link : links) {
    const Link* found = links_.find(link.hash);
    if (found == nullptr) break;
    match.tokens = std::min(found->tokens, link.tokens);
    const Part* part = find(found->part);
    if (part != nullptr && !part->nodes.empty()) match.part = found->part;
  }
  return match;
}

CandidateOrder PreblePolicy::choose(const PolicyInput& input, Random& random) const {
  const Match known = match(prompt_links(input.key, input.tokens));
  const bool exploit = 2 * known.tokens > input.tokens.prompt;
  const Part* part = exploit ? find(known.part) : nullptr;
  const auto within = [&](NodeIndex node) {
    return part == nullptr || std::find(part->nodes.begin(), part->nodes.end(), node) != part->nodes.end();
  };
  // Outside the set only for want of a node inside it.
  constexpr double kOutside = 1e9;
  return order_by_cost(input, options_.order_max, random_start(input, random),
                       [&](NodeIndex node, const Resident::Here&) {
                         return (node < cost_.size() ? cost_[node] : 0) + (within(node) ? 0 : kOutside);
                       });
}

double PreblePolicy::cost_of(const Part& part, NodeIndex node) const {
  double active = 0;
  for (const Here& h : part.here) {
    if (h.node == node) active = static_cast<double>(h.active);
  }
  const double answer = part.answer_tokens > 0 ? part.answer_tokens : kFirstAnswerTokens;
  double cost = active * answer * per_token_[node];
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
    // Who explores joins the sets above, unless what is shared with them is a small part of theirs.
    Part* above = exploit ? nullptr : find(known.part);
    if (above != nullptr && 2 * known.tokens > above->tokens &&
        std::find(above->nodes.begin(), above->nodes.end(), request.node) == above->nodes.end())
      change(*above, [&] { above->nodes.push_back(request.node); });
  }
  bool met_unknown = false;
  for (const PromptLink& link : links) {
    met_unknown |= links_.find(link.hash) == nullptr;
    Link& kept = links_.touch(link.hash);
    if (met_unknown || find(kept.part) == nullptr) kept.part = id;
    kept.tokens = link.tokens;
  }
  return id;
}

void PreblePolicy::sent(const PolicyRequest& request, TimePoint now) {
  if (request.node >= cost_.size()) return;  // of no cluster we were told of
  sent_count_ += 1;
  expire(now);
  const PromptLinks links = prompt_links(request.key, request.tokens);
  const int64_t hit = std::min(match(links).tokens, request.tokens.prompt);
  const PartId id = part_of(request, links);
  Part& part = *find(id);
  change(part, [&] {
    if (part.nodes.empty()) part.nodes.push_back(request.node);
    part.requests += 1;
    part.hit_tokens += hit;
    part.prompt_tokens += request.tokens.prompt;
    here_of(part, request.node).active += 1;
  });
  window_.push_back(Event{now, id, request.tokens.prompt, hit});
  Flight flight;
  flight.part = id;
  flight.node = request.node;
  flight.life = life_[request.node];
  flight.sent_at = now;
  flights_.emplace(request.id, flight);
  if (sent_count_ >= kRebalanceFrom && now >= balanced_at_ + kRebalanceEvery) rebalance(now);
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

void PreblePolicy::finished(const PolicyRequest& request, TimePoint now) {
  const auto it = flights_.find(request.id);
  if (it == flights_.end()) return;
  const Flight flight = it->second;
  flights_.erase(it);
  Part* part = find(flight.part);
  if (part != nullptr && flight.life == life_[flight.node]) {
    change(*part, [&] {
      here_of(*part, flight.node).active -= 1;
      if (request.completion_tokens > 1) {
        const auto answer = static_cast<double>(request.completion_tokens);
        part->answer_tokens += part->answer_tokens > 0 ? kMeanStep * (answer - part->answer_tokens) : answer;
      }
    });
  }
  // A node's time per token stands in all its parts' costs: they are summed anew with the next rebalancing.
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
    parts_.erase(event.part);  // its links find no part, so the next to come makes one
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
  cost_ = costs();  // also rids the sums of what rounding left
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
    if (part.requests > 1 && std::find(part.nodes.begin(), part.nodes.end(), dear) != part.nodes.end())
      parts.push_back(Movable{cost_of(part, dear), &part});
  }
  if (parts.size() == 1) {
    Part& part = *parts.front().part;
    const bool has = std::find(part.nodes.begin(), part.nodes.end(), cheap) != part.nodes.end();
    if (has || !overloaded(part, dear, half_of(balanced_at_))) return;
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
  life_[node] += 1;
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
