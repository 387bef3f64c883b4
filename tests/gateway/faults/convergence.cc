// The faults of the simulated fleet, and what must come true once they are over.

#include <algorithm>
#include <map>
#include <utility>

#include "tests/gateway/faults/world.h"

namespace troupe::route::faults {

void World::add_worker() {
  const size_t items = 5 + pick(30);  // less than a gateway remembers
  const int64_t kv_tokens = 2000 + 100 * static_cast<int64_t>(pick(400));
  workers_.emplace_back(items, kv_tokens);
  models_.push_back(chance(0.8) ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"});
  for (size_t g = 0; g < gateways_.size(); ++g) {
    links_[g].emplace_back();
    streams_[g].emplace_back();
    gateways_[g]->add_node(models_.back(), clock_of(g));
  }
}

void World::kill(NodeIndex node) {
  FaultWorker& worker = workers_[node];
  if (!worker.alive) return;
  say("n" + std::to_string(node) + " dies");
  worker.die();
  for (size_t g = 0; g < gateways_.size(); ++g) {
    if (chance(0.8)) break_stream(g, node);  // else nobody sees it: the connection stands half open
  }
}

void World::any_fault() {
  out_.faults += 1;
  const NodeIndex node = pick(workers_.size());
  FaultWorker& worker = workers_[node];
  const size_t gateway = pick(gateways_.size()), other = pick(gateways_.size());
  switch (pick(9)) {
    case 0:
      kill(node);
      return;
    case 1:  // and is back before anybody may have noticed
      kill(node);
      after(between(1, 200), [this, node] {
        if (!workers_[node].alive) workers_[node].come_back();
      });
      return;
    case 2:
      if (!worker.alive) {
        say("n" + std::to_string(node) + " comes back");
        worker.come_back();
      }
      return;
    case 3:
      worker.draining = worker.alive && !worker.draining;
      return;
    case 4:
      if (workers_.size() < 14) add_worker();
      return;
    case 5:
      restart(gateway);
      return;
    case 6:
      links_[gateway][node].cut = true;
      break_stream(gateway, node);
      after(between(100, 6000), [this, gateway, node] { links_[gateway][node].cut = false; });
      return;
    case 7:
      say("n" + std::to_string(node) + (worker.ill ? " is well again" : " answers nothing but errors"));
      worker.ill = !worker.ill;
      return;
    default:
      apart_.insert(std::minmax(gateway, other));
      after(between(100, 6000), [this, gateway, other] { apart_.erase(std::minmax(gateway, other)); });
      return;
  }
}

// The others notice by its new name, and by the silence of the old one.
void World::restart(size_t gateway) {
  say("gateway " + std::to_string(gateway) + " restarts");
  gateways_[gateway]->restart(random_.next(), clock_of(gateway));
  loads_seen_[gateway] = 0;
  for (Stream& stream : streams_[gateway]) stream.connected = false;
  std::erase_if(writing_, [gateway](const auto& letter) { return letter.first == gateway; });
}

void World::heal() {
  say("the faults are over");
  faulty_ = false;
  loss_ = 0;
  apart_.clear();
  for (auto& links : links_) {
    for (Link& link : links) link.cut = false;
  }
  for (size_t n = 0; n < workers_.size(); ++n) {
    if (!workers_[n].alive && (n == 0 || chance(0.5))) workers_[n].come_back();
    if (chance(0.7)) workers_[n].draining = false;
    workers_[n].ill = false;
    // Connections that stood half open end at last, as TCP's do.
    for (size_t g = 0; g < gateways_.size(); ++g) {
      if (!workers_[n].alive || streams_[g][n].worker_life != workers_[n].life)
        break_stream(g, static_cast<NodeIndex>(n));
    }
  }
}

void World::check_converged() {
  for (size_t g = 0; g < gateways_.size() && out_.breach.empty(); ++g) {
    FaultGateway& gateway = *gateways_[g];
    gateway.check_indices();
    watch();
    const std::string who = "in the end, gateway " + std::to_string(g) + ": ";
    for (NodeIndex n = 0; n < workers_.size(); ++n) {
      const NodeState is = !workers_[n].alive     ? NodeState::kDead
                           : workers_[n].draining ? NodeState::kDraining
                                                  : NodeState::kAlive;
      if (gateway.health(n).state() != is)
        breach(who + "n" + std::to_string(n) + " is taken for " +
               std::string(node_state_name(gateway.health(n).state())));
      const NodeLoad& load = gateway.router().loads().at(n);
      if (load.peers_requests != 0 || load.peers_pending_tokens != 0)
        breach(who + "another gateway's requests stay booked at n" + std::to_string(n));
      if (is != NodeState::kDead && load.others_requests != 0)
        breach(who + "requests that nobody has stay counted at n" + std::to_string(n));
    }
    if (gateway.router().loads().in_flight_total() != 0) breach(who + "requests stay booked");
    if (nodes_report()) check_residency(g);
    // The same loads again and again: nothing moves any more.
    if (gateway.router().table() != resting_[g]) breach(who + "the table does not come to rest");
    if (gateway.table_text() != gateways_[0]->table_text()) breach(who + "it has a table of its own");
  }
}

// As soon as messages flow again, and from then on, whatever is planned: of one version everywhere.
void World::check_one_table() {
  for (size_t g = 1; g < gateways_.size() && out_.breach.empty(); ++g) {
    if (gateways_[g]->router().planning().version() == gateways_[0]->router().planning().version()) continue;
    breach("gateways 0 and " + std::to_string(g) + " go by different tables");
  }
}

void World::check_residency(size_t gateway) {
  for (NodeIndex n = 0; n < workers_.size(); ++n) {
    const std::string wrong = differs(*gateways_[gateway], n);
    if (!wrong.empty())
      breach("in the end, gateway " + std::to_string(gateway) + ", n" + std::to_string(n) + ": " + wrong);
  }
}

std::string World::differs(const FaultGateway& gateway, NodeIndex node) const {
  const ExactResidency& exact = *const_cast<FaultGateway&>(gateway).router().known().exact;
  std::map<Hash128, FaultWorker::Item> said;
  exact.index.for_each_of(node, [&said](const Hash128& key, HolderKind kind, int64_t tokens) {
    said[key] = {kind, tokens};
  });
  const FaultWorker& worker = workers_[node];
  if (!worker.alive) return said.empty() ? "" : "it is dead, and said to hold something";
  if (!exact.feeds.in_step(node)) return "its feed is not in step";
  if (said.size() != worker.holds().size())
    return "it holds " + std::to_string(worker.holds().size()) + ", and is said to hold " +
           std::to_string(said.size());
  for (const auto& [name, item] : worker.holds()) {
    const auto it = said.find(name);
    if (it == said.end() || it->second.tokens != item.tokens || it->second.kind != item.kind)
      return "what it holds is not what it is said to hold";
  }
  return "";
}

}  // namespace troupe::route::faults
