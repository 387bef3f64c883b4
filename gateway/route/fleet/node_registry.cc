#include "gateway/route/fleet/node_registry.h"

#include <algorithm>
#include <cmath>

#include "common/core/check.h"

namespace troupe::route {

namespace {

using ActionKind = NodeAction::Kind;
using Departure = RegisteredNode::Departure;
using Membership = RegisteredNode::Membership;

constexpr double kRampSteps = 10;

bool from_probe(HealthEvent event) {
  return event == HealthEvent::kProbeOk || event == HealthEvent::kProbeNotReady ||
         event == HealthEvent::kProbeFail;
}

NodeAction action(ActionKind kind, NodeIndex node) {
  NodeAction made;
  made.kind = kind;
  made.node = node;
  return made;
}

void come_back(RegisteredNode& node, NodeIndex index, NodeActions& actions) {
  node.departure = Departure::kNone;
  actions.push_back(action(ActionKind::kStay, index));
}

RegisteredNode registered(NewNode added, const HealthOptions& health) {
  RegisteredNode node;
  node.id = std::move(added.id);
  node.url = std::move(added.url);
  node.service.models = std::move(added.models);
  node.capacity = added.capacity;
  node.health = NodeHealth(health);
  return node;
}

NodeView view_of(const RegisteredNode& node, int64_t in_flight_max) {
  NodeView view;
  view.id = node.id;
  view.url = node.url;
  view.leaving = node.leaving() && node.healthy();
  view.state = view.leaving ? node.health.state() : node.state();
  view.failing = node.health.failing();
  view.weight = node.weight * node.capacity;
  view.in_flight_max = in_flight_max;
  view.models = node.service.models;
  view.contexts = node.service.contexts;
  view.is_troupe_worker = node.service.is_troupe_worker;
  return view;
}

}  // namespace

double ramp_weight(Duration joined_for, Duration ramp) {
  if (joined_for >= ramp) return 1;
  const double part =
      std::max(0.0, static_cast<double>(joined_for.count()) / static_cast<double>(ramp.count()));
  return (1 + std::floor(part * (kRampSteps - 1))) / kRampSteps;
}

NodeState RegisteredNode::state() const {
  if (!member()) return NodeState::kDead;
  return healthy() && (drained || notified) ? NodeState::kDraining : health.state();
}

NodeRegistry::NodeRegistry(const NodeRegistryOptions& options, std::vector<NewNode> nodes)
    : options_(options), slots_(std::max(options.nodes_max, nodes.size())) {
  for (NewNode& added : nodes) {
    const NodeIndex index = slots_.take().value();
    by_id_.try_emplace(added.id, index);
    nodes_.push_back(registered(std::move(added), options_.health));
    initial_probing_.await(index);
  }
  NodeActions adopted_by_the_driver;
  publish(adopted_by_the_driver);
}

NodeActions NodeRegistry::change(const NodeRegistryOptions& options) {
  options_ = options;
  for (RegisteredNode& node : nodes_) node.health.change(options.health);
  NodeActions actions;
  publish(actions);
  return actions;
}

StatusOr<NodeRegistry::Added> NodeRegistry::add(NewNode added, bool comes_back) {
  Added out;
  if (const auto known = find_slot(added.id)) {
    out.node = *known;
    RegisteredNode& node = nodes_[out.node];
    out.connect = node.url != added.url;
    node.url = std::move(added.url);
    node.capacity = added.capacity;
    if (!comes_back) {
      publish(out.actions);
      return out;
    }
    if (std::exchange(node.drained, false) && !node.notified) come_back(node, out.node, out.actions);
    if (std::exchange(node.membership, Membership::kMember) == Membership::kRemoved) {
      node.health = NodeHealth(options_.health);
      node.notified = false;
      slots_.take_back(out.node);
    }
  } else {
    TROUPE_ASSIGN_OR_RETURN(out.node, slots_.take());
    out.connect = true;
    out.replaces = out.node < nodes_.size();
    if (out.replaces) {
      if (find_slot(nodes_[out.node].id) == out.node) by_id_.erase(nodes_[out.node].id);
      std::erase(ramping_, out.node);
    } else {
      nodes_.emplace_back();
    }
    by_id_[added.id] = out.node;
    nodes_[out.node] = registered(std::move(added), options_.health);
    if (initial_probing_.awaits_members()) initial_probing_.await(out.node);
  }
  publish(out.actions);
  out.actions.push_back(action(ActionKind::kFollow, out.node));
  return out;
}

NodeActions NodeRegistry::drain(NodeIndex index, const Moment& moment) {
  NodeActions actions;
  if (std::exchange(nodes_[index].drained, true)) return actions;
  actions.push_back(action(ActionKind::kDrains, index));
  begin_leaving(index, moment, TimePoint::max(), actions);
  return actions;
}

NodeActions NodeRegistry::retire(NodeIndex index, const Moment& moment) {
  nodes_[index].membership = Membership::kRetired;
  NodeActions actions = drain(index, moment);
  if (nodes_[index].leaving()) return actions;
  take_out(index, actions);
  publish(actions);
  return actions;
}

NodeActions NodeRegistry::remove(NodeIndex index) {
  NodeActions actions;
  take_out(index, actions);
  publish(actions);
  return actions;
}

void NodeRegistry::take_out(NodeIndex index, NodeActions& actions) {
  RegisteredNode& node = nodes_[index];
  TROUPE_CHECK(node.member(), node.id + " is removed already");
  node.membership = Membership::kRemoved;
  node.service = {};
  slots_.release_slot(index);
  initial_probing_.seen(index);
  come_back(node, index, actions);
  actions.push_back(action(ActionKind::kDisconnect, index));
  actions.push_back(action(ActionKind::kForget, index));
  actions.push_back(action(ActionKind::kRemoved, index));
}

// True: the view is not true any more.
bool NodeRegistry::learn(NodeIndex index, HealthEvent event, TimePoint now, NodeActions& actions) {
  RegisteredNode& node = nodes_[index];
  if (!node.member()) return false;  // an answer that was under way
  if (from_probe(event)) initial_probing_.seen(index);
  const NodeState before = node.health.state();
  // Another program in its place.
  const bool returns = event == HealthEvent::kProbeOk && std::exchange(node.notified, false);
  if (returns) come_back(node, index, actions);
  const bool changed = node.health.on_event(event, now);
  if (changed) {
    actions.push_back(action(ActionKind::kChangedState, index));
    actions.back().before = before;
  }
  if (!changed && !returns) return false;
  if (node.health.state() != NodeState::kDead) return true;
  actions.push_back(action(ActionKind::kForget, index));
  actions.push_back(action(ActionKind::kDisconnect, index));
  if (node.leaving()) node.departure = Departure::kLeft;
  if (node.membership == Membership::kRetired) take_out(index, actions);
  return true;
}

NodeActions NodeRegistry::on_event(std::span<const NodeIndex> nodes, HealthEvent event,
                                   const Moment& moment) {
  NodeActions actions;
  absl::InlinedVector<NodeIndex, 4> changed, may_begin_empty;
  for (const NodeIndex index : nodes) {
    const bool returns = event == HealthEvent::kProbeOk && nodes_[index].notified;
    if (!learn(index, event, moment.now, actions)) continue;
    changed.push_back(index);
    if (returns || !view_->routable(index)) may_begin_empty.push_back(index);
  }
  if (changed.empty()) return actions;
  publish(actions);
  for (const NodeIndex index : may_begin_empty) {
    if (view_->routable(index) && !nodes_[index].leaving()) begin_empty(index, moment, actions);
  }
  for (const NodeIndex index : changed) {
    if (nodes_[index].health.wants_probe()) actions.push_back(action(ActionKind::kProbe, index));
  }
  return actions;
}

NodeActions NodeRegistry::saw_notice(NodeIndex index, Duration takes_requests_for, const Moment& moment) {
  RegisteredNode& node = nodes_[index];
  NodeActions actions;
  if (!node.member()) return actions;
  if (!moment.moves_sets || !node.healthy())
    return on_event(std::span(&index, 1), HealthEvent::kProbeNotReady, moment);
  initial_probing_.seen(index);
  if (std::exchange(node.notified, true)) return actions;
  actions.push_back(action(ActionKind::kGaveNotice, index));
  begin_leaving(index, moment, moment.now + takes_requests_for, actions);
  return actions;
}

// The view first: who is to have its sets is planned with it.
void NodeRegistry::begin_leaving(NodeIndex index, const Moment& moment, TimePoint until,
                                 NodeActions& actions) {
  RegisteredNode& node = nodes_[index];
  const bool leaves = moment.moves_sets && view_->routable(index);
  const bool begins = leaves && node.departure == Departure::kNone;
  if (leaves) {
    node.departure = Departure::kLeaving;
  } else if (node.leaving()) {
    node.departure = Departure::kLeft;
  }
  publish(actions);
  if (!begins) return;
  actions.push_back(action(ActionKind::kMoveSets, index));
  actions.back().until = until;
}

NodeActions NodeRegistry::handover_done(NodeIndex index) {
  RegisteredNode& node = nodes_[index];
  TROUPE_CHECK(node.leaving(), node.id + " does not leave");
  node.departure = Departure::kLeft;
  NodeActions actions;
  if (node.membership == Membership::kRetired) take_out(index, actions);
  publish(actions);
  return actions;
}

// The node is to compute what it lacks, and is not flooded with sets that no node holds.
void NodeRegistry::begin_empty(NodeIndex index, const Moment& moment, NodeActions& actions) {
  if (!moment.moves_sets) return;
  RegisteredNode& node = nodes_[index];
  node.departure = Departure::kNone;
  if (moment.knows_sets && options_.ramp > Duration::zero()) {
    if (!node.joined_at) ramping_.push_back(index);
    node.joined_at = moment.now;
    node.weight = ramp_weight(Duration::zero(), options_.ramp);
    publish(actions);
  }
  actions.push_back(action(ActionKind::kFillCache, index));
}

NodeActions NodeRegistry::saw_cache_epoch(NodeIndex index, std::string_view epoch, const Moment& moment) {
  RegisteredNode& node = nodes_[index];
  NodeActions actions;
  if (node.cache_epoch == epoch) return actions;
  const bool first = node.cache_epoch.empty();
  node.cache_epoch = epoch;
  if (first) return actions;
  actions.push_back(action(ActionKind::kForget, index));
  if (view_->routable(index) && !node.leaving()) begin_empty(index, moment, actions);
  return actions;
}

NodeActions NodeRegistry::set_service(NodeIndex index, NodeService service) {
  RegisteredNode& node = nodes_[index];
  NodeActions actions;
  if (!node.member() || node.service == service) return actions;
  node.service = std::move(service);
  publish(actions);
  return actions;
}

NodeActions NodeRegistry::ramp(TimePoint now) {
  NodeActions actions;
  bool changed = false;
  for (const NodeIndex index : ramping_) {
    RegisteredNode& node = nodes_[index];
    const Duration since = now - *node.joined_at;
    const double weight = ramp_weight(since, options_.ramp);
    if (since >= options_.ramp) node.joined_at.reset();
    changed = changed || weight != node.weight;
    node.weight = weight;
  }
  std::erase_if(ramping_, [this](NodeIndex index) { return !nodes_[index].joined_at; });
  if (changed) publish(actions);
  return actions;
}

std::optional<NodeIndex> NodeRegistry::find_slot(std::string_view id) const {
  const auto found = by_id_.find(to_absl(id));
  if (found == by_id_.end()) return std::nullopt;
  return found->second;
}

std::optional<NodeIndex> NodeRegistry::find(std::string_view id) const {
  const auto slot = find_slot(id);
  return slot && nodes_[*slot].member() ? slot : std::nullopt;
}

void NodeRegistry::publish(NodeActions& actions) {
  std::vector<NodeView> views;
  views.reserve(nodes_.size());
  for (const RegisteredNode& node : nodes_) views.push_back(view_of(node, options_.in_flight_max));
  view_ = std::make_shared<ClusterView>(++view_epoch_, std::move(views));
  actions.push_back(action(ActionKind::kAdopt, kNoNode));
  actions.back().view = view_;
}

}  // namespace troupe::route
