#include "gateway/route/fleet/load_tracker.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::route {
namespace {

// The decay factor is renewed when it is older than this: 1/2000 of the time constant.
constexpr Duration kDeflateStep = std::chrono::milliseconds(10);
constexpr double kRebaseAbove = 1e12;
constexpr double kPromptStep = 1.0 / 256;  // of the mean prompt towards the last one
// Ranks: after every node that may be asked, but before none at all.
constexpr double kFull = 1e9;
constexpr double kSuspectPenalty = 1e12;

// Ledgers come late, by some tens of milliseconds: over so many what is too much and too little evens out.
constexpr double kUnaccountedSeconds = 1;

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

LoadTracker::LoadTracker(const AffinityOptions& options)
    : options_(options),
      pending_weight_(options.mode == Mode::kPlan ? options.pending_weight_plan : options.pending_weight),
      prompt_mean_(options.load_tokens / options.load_prompt_share) {}

void LoadTracker::change(const AffinityOptions& options) {
  options_ = options;
  pending_weight_ = options.mode == Mode::kPlan ? options.pending_weight_plan : options.pending_weight;
}

void LoadTracker::resize(size_t nodes) {
  if (nodes <= loads_.size()) return;
  loads_.resize(nodes);
  cached_.resize(nodes);
  places_.resize(nodes);
  in_flight_max_.resize(nodes, 0);
}

void LoadTracker::update_cluster(const ClusterView& view) {
  resize(view.size());
  for (auto& places : places_) places.clear();
  groups_.clear();
  for (NodeIndex n = 0; n < view.size(); ++n) {
    cached_[n].per_weight = 1 / view.node(n).weight;
    cached_[n].suspect = view.node(n).state == NodeState::kSuspect;
    in_flight_max_[n] = view.node(n).in_flight_max;
    cached_[n].full = in_flight_max_[n] > 0 && loads_[n].in_flight >= in_flight_max_[n];
  }
  for (const std::string& model : view.models()) {
    auto made = std::make_unique<Group>();
    const auto nodes = view.nodes_for(model);
    made->nodes.assign(nodes.begin(), nodes.end());
    made->least.resize(nodes.size());
    for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
      const Cached& c = cached_[nodes[slot]];
      Place place{made.get(), slot};
      places_[nodes[slot]].push_back(place);
      made->weight += view.node(nodes[slot]).weight;
      made->requests += c.requests;
      made->reported_work += c.reported_work;
      made->own_work += c.own_work;
    }
    groups_.emplace(model, std::move(made));
  }
  for (auto& [model, group] : groups_) {
    const Means now = means(*group);
    for (size_t slot = 0; slot < group->nodes.size(); ++slot) rank(*group, now, slot);
  }
}

const LoadTracker::Group* LoadTracker::group(std::string_view model) const {
  const auto it = groups_.find(to_absl(model));
  return it == groups_.end() || it->second->nodes.empty() ? nullptr : it->second.get();
}

LoadTracker::Ticket LoadTracker::open(NodeIndex node, const Booking& booking, TimePoint now) {
  resize(static_cast<size_t>(node) + 1);
  advance(now);
  NodeLoad& load = loads_[node];
  Ticket ticket{node, load.incarnation, load.reports, std::max<int64_t>(booking.pending_tokens, 0),
                booking.answers};
  load.in_flight += ticket.answers;
  load.pending_tokens += ticket.pending_tokens;
  load.fresh_pending_tokens += ticket.pending_tokens;
  in_flight_total_ += ticket.answers;
  pending_total_ += ticket.pending_tokens;
  if (const auto prompt = static_cast<double>(booking.prompt_tokens); prompt > 0)
    prompt_mean_ += kPromptStep * (prompt - prompt_mean_);
  if (!load.reported) {  // else its own counter has it, with the work of all clients
    const double added =
        static_cast<double>(booking.work_tokens) / seconds(options_.work_time_constant) / deflate_;
    cached_[node].own_work += added;
    for (const auto& [group, slot] : places_[node]) group->own_work += added;
  }
  touch(node, Changed::kOwn);
  return ticket;
}

void LoadTracker::first_byte(Ticket& ticket) {
  if (ticket.node == kNoNode || ticket.pending_tokens == 0) return;
  if (loads_[ticket.node].incarnation == ticket.incarnation) {
    end_pending(ticket);
    touch(ticket.node, Changed::kOwn);
  }
  ticket.pending_tokens = 0;
}

void LoadTracker::end_pending(const Ticket& ticket) {
  NodeLoad& load = loads_[ticket.node];
  load.pending_tokens -= ticket.pending_tokens;
  pending_total_ -= ticket.pending_tokens;
  if (ticket.reports == load.reports) {
    load.fresh_pending_tokens -= ticket.pending_tokens;
  } else {
    load.reported_pending_tokens = std::max<int64_t>(load.reported_pending_tokens - ticket.pending_tokens, 0);
  }
}

void LoadTracker::close(Ticket& ticket) {
  if (ticket.node == kNoNode) return;
  NodeLoad& load = loads_[ticket.node];
  if (load.incarnation == ticket.incarnation) {
    end_pending(ticket);
    load.in_flight -= ticket.answers;
    in_flight_total_ -= ticket.answers;
    touch(ticket.node, Changed::kOwn);
  }
  ticket = Ticket{};
}

// Accounts for what the report has beyond all ledgers.
void LoadTracker::account(NodeLoad& load, TimePoint now) {
  load.peers_pending_then = load.peers_pending_tokens;
  const double passed = load.reports == 0 ? 1e9 : seconds(now - load.reported_at);
  const auto unaccounted = static_cast<double>(load.others_requests - load.peers_requests);
  load.unaccounted_requests -=
      std::expm1(-passed / kUnaccountedSeconds) * (unaccounted - load.unaccounted_requests);
}

void LoadTracker::report(NodeIndex node, const NodeReport& report, TimePoint now) {
  resize(static_cast<size_t>(node) + 1);
  advance(now);
  NodeLoad& load = loads_[node];
  Cached& c = cached_[node];
  load.others_requests = report.running + report.queued - load.in_flight;
  load.reported_pending_tokens = report.pending_prefill_tokens;
  load.fresh_pending_tokens = 0;
  account(load, now);
  load.reports += 1;
  double rate = c.reported_work;
  if (!load.reported) {  // from here on its counter; up to here our own sum stands for it
    rate = c.own_work * deflate_;
    for (const auto& [group, slot] : places_[node]) group->own_work -= c.own_work;
    c.own_work = 0;
  } else if (now > load.reported_at && report.work_tokens_total >= load.report.work_tokens_total) {
    const double passed = seconds(now - load.reported_at);
    const auto done = static_cast<double>(report.work_tokens_total - load.report.work_tokens_total);
    const double keep = std::exp(-passed / seconds(options_.work_time_constant));
    rate = rate * keep + done / passed * (1 - keep);
  }
  for (const auto& [group, slot] : places_[node]) group->reported_work += rate - c.reported_work;
  c.reported_work = rate;
  if (!load.reported || now > load.reported_at) load.reported_at = now;
  load.report = report;
  load.reported = true;
  touch(node, Changed::kOthers);
}

void LoadTracker::forget_node(NodeIndex node) {
  resize(static_cast<size_t>(node) + 1);
  NodeLoad& load = loads_[node];
  Cached& c = cached_[node];
  in_flight_total_ -= load.in_flight;
  pending_total_ -= load.pending_tokens;
  for (const auto& [group, slot] : places_[node]) {
    group->own_work -= c.own_work;
    group->reported_work -= c.reported_work;
  }
  c.own_work = c.reported_work = 0;
  for (auto& [gateway, book] : peers_) book.loads.erase(node);
  NodeLoad fresh;
  fresh.incarnation = load.incarnation + 1;
  load = fresh;
  touch(node, Changed::kOwn);
}

void LoadTracker::apply_peer(const PeerLoad& load, int64_t sign) {
  loads_[load.node].peers_requests += sign * load.in_flight;
  loads_[load.node].peers_pending_tokens += sign * load.pending_tokens;
}

void LoadTracker::peer_loads(uint32_t gateway, std::span<const PeerLoad> loads) {
  PeerBook& book = peers_[gateway];
  for (const PeerLoad& said : loads) {
    if (said.node >= loads_.size()) continue;  // a node that this gateway does not know yet
    PeerLoad& known = book.loads[said.node];
    if (known.node != kNoNode) apply_peer(known, -1);
    known = said;
    apply_peer(known, 1);
    touch(said.node, Changed::kOthers);
  }
}

void LoadTracker::forget_peer(uint32_t gateway) {
  const auto it = peers_.find(gateway);
  if (it == peers_.end()) return;
  for (const auto& [node, load] : it->second.loads) {
    apply_peer(load, -1);
    touch(node, Changed::kOthers);
  }
  peers_.erase(it);
}

void LoadTracker::take_changes(std::vector<PeerLoad>& out, bool all) {
  const auto take = [&](NodeIndex node) {
    out.push_back(PeerLoad{node, loads_[node].in_flight, loads_[node].pending_tokens});
  };
  if (all) {  // those with nothing, too: the message that said so may be the one that was lost
    for (NodeIndex n = 0; n < loads_.size(); ++n) take(n);
  } else {
    for (const NodeIndex n : changed_) take(n);
  }
  for (const NodeIndex n : changed_) cached_[n].dirty = false;
  changed_.clear();
}

// Work against the mean says little on an idle fleet: the node that served the only request lately has all
// the work there was, and is no busier for it. So it counts fully only where nodes have requests at once.
LoadTracker::Means LoadTracker::means(const Group& group) const {
  Means means;
  means.requests = group.requests / group.weight;
  const double slack = options_.requests_slack;
  means.inverse = 1 / (means.requests + slack);
  const double work = group.reported_work + group.own_work * deflate_;
  const double squared = means.requests * means.requests;
  if (squared > 0) means.busy = squared / (squared + slack * slack);
  if (work > 1e-9) means.inverse_work = group.weight / work;
  means.load_tokens = options_.load_tokens * scale();
  return means;
}

// A node's numbers have changed: the sums follow, and its ranks. Ranks of the others move with the means,
// which is little at a time; one other is renewed with each change.
void LoadTracker::touch(NodeIndex node, Changed what) {
  const NodeLoad& load = loads_[node];
  Cached& c = cached_[node];
  if (what == Changed::kOwn && !std::exchange(c.dirty, true)) changed_.push_back(node);
  auto others = static_cast<double>(load.others_requests);
  int64_t pending = load.reported_pending_tokens + load.fresh_pending_tokens;
  if (options_.peer_ledger) {
    others = static_cast<double>(load.peers_requests) + std::max(load.unaccounted_requests, 0.0);
    pending += load.peers_pending_tokens - load.peers_pending_then;
  }
  const double requests = std::max(static_cast<double>(load.in_flight) + others, 0.0);
  c.pending = static_cast<double>(std::max(pending, load.fresh_pending_tokens));
  for (const auto& [group, slot] : places_[node]) group->requests += requests - c.requests;
  c.requests = requests;
  c.saturation = 0;
  if (const int64_t batch = load.report.max_num_seqs; batch > 0) {
    const double filled = requests / static_cast<double>(batch);
    c.saturation = options_.saturation_weight * std::max(filled - options_.saturation_from, 0.0);
  }
  c.full = in_flight_max_[node] > 0 && load.in_flight >= in_flight_max_[node];
  for (const auto& [group, slot] : places_[node]) {
    const Means now = means(*group);
    rank(*group, now, slot);
    group->refresh = group->refresh + 1 < group->nodes.size() ? group->refresh + 1 : 0;
    rank(*group, now, group->refresh);
  }
}

void LoadTracker::rank(Group& group, const Means& means, size_t slot) {
  const NodeIndex node = group.nodes[slot];
  const Cached& c = cached_[node];
  double key = cost(means, node).total();
  if (c.full) key += kFull;
  if (c.suspect) key += kSuspectPenalty;
  group.least.set(static_cast<uint32_t>(slot), static_cast<float>(key));
}

void LoadTracker::advance(TimePoint now) {
  if (base_ == TimePoint{}) base_ = deflated_at_ = now;
  if (now < deflated_at_ + kDeflateStep) return;
  deflated_at_ = now;
  const double grown = seconds(now - base_) / seconds(options_.work_time_constant);
  deflate_ = std::exp(-grown);
  if (deflate_ * kRebaseAbove < 1) rebase(now);
}

// The inflated sums would overflow in the end: once in half an hour they start anew.
void LoadTracker::rebase(TimePoint now) {
  for (Cached& c : cached_) c.own_work *= deflate_;
  for (auto& [model, group] : groups_) {
    group->own_work = 0;
    group->requests = group->reported_work = 0;  // and are freed of rounding
    for (const NodeIndex n : group->nodes) {
      group->own_work += cached_[n].own_work;
      group->requests += cached_[n].requests;
      group->reported_work += cached_[n].reported_work;
    }
  }
  base_ = now;
  deflate_ = 1;
}

}  // namespace troupe::route
