#include "gateway/cluster/worker_discovery.h"

#include <algorithm>

namespace troupe {

WorkerDiscovery::WorkerDiscovery(Fleet& fleet, const std::vector<std::string>& configured, const Logger& log)
    : fleet_(fleet), log_(log), configured_(configured.begin(), configured.end()) {
  if (configured_.empty()) fleet_.initial_probing().await_members();
}

void WorkerDiscovery::registered(const std::string& key, std::string_view record) {
  auto parsed = parse_worker_record(record);
  const auto endpoint = parsed.ok() ? Endpoint::parse(parsed->url) : parsed.status();
  if (!endpoint.ok()) {
    log_.warn("worker_record_malformed", {{"key", key}, {"why", to_std(endpoint.status().message())}});
    return;
  }
  const std::string id = endpoint->authority();
  const auto known = registered_.find(key);
  // A lost lease that returns does not undo an operator's change.
  const bool same_life = known != registered_.end() && known->second.record == *parsed;
  if (known != registered_.end() && known->second.id != id) gone(key);
  leaving_.erase(id);
  registered_[key] = {*std::move(parsed), id};
  if (same_life || configured_.contains(id)) return;
  const auto node = fleet_.find(id);
  if (node && fleet_.client(*node).endpoint() == *endpoint) return;
  if (const auto added = fleet_.add(*endpoint); !added.ok())
    log_.warn("worker_not_added", {{"worker", id}, {"why", to_std(added.status().message())}});
}

bool WorkerDiscovery::elsewhere(const std::string& id) const {
  return std::any_of(registered_.begin(), registered_.end(),
                     [&](const auto& entry) { return entry.second.id == id; });
}

void WorkerDiscovery::gone(const std::string& key) {
  const auto known = registered_.find(key);
  if (known == registered_.end()) return;
  const std::string id = known->second.id;
  registered_.erase(known);
  if (configured_.contains(id) || elsewhere(id)) return;
  log_.info("worker_unregistered", {{"worker", id}});
  leaving_.insert(id);
}

void WorkerDiscovery::all(const std::vector<std::pair<std::string, std::string>>& records) {
  std::set<std::string> present;
  for (const auto& [key, record] : records) present.insert(key);
  std::vector<std::string> missing;
  for (const auto& [key, worker] : registered_) {
    if (!present.contains(key)) missing.push_back(key);
  }
  for (const std::string& key : missing) gone(key);
  for (const auto& [key, record] : records) registered(key, record);
  fleet_.initial_probing().members_known();
}

void WorkerDiscovery::tend() {
  std::erase_if(leaving_, [this](const std::string& id) {
    const auto node = fleet_.find(id);
    if (!node) return true;  // an operator was first
    if (!fleet_.known_dead(*node)) return false;
    fleet_.remove(*node);
    return true;
  });
}

}  // namespace troupe
