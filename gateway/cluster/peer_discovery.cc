#include "gateway/cluster/peer_discovery.h"

namespace troupe {

PeerDiscovery::PeerDiscovery(Gossip& gossip, std::string own_key, const Logger& log)
    : gossip_(gossip), own_key_(std::move(own_key)), log_(log) {}

bool PeerDiscovery::keep(const std::string& key, std::string_view record) {
  if (key == own_key_) return false;
  const auto parsed = parse_gateway_record(record);
  auto endpoint = parsed.ok() ? Endpoint::parse(parsed->url) : parsed.status();
  if (!endpoint.ok()) {
    log_.warn("gateway_record_malformed", {{"key", key}, {"why", to_std(endpoint.status().message())}});
    return false;
  }
  found_.insert_or_assign(key, *std::move(endpoint));
  return true;
}

void PeerDiscovery::registered(const std::string& key, std::string_view record) {
  if (keep(key, record)) publish();
}

void PeerDiscovery::gone(const std::string& key) {
  if (found_.erase(key) > 0) publish();
}

void PeerDiscovery::all(const std::vector<std::pair<std::string, std::string>>& records) {
  found_.clear();
  for (const auto& [key, record] : records) keep(key, record);
  publish();
}

void PeerDiscovery::publish() {
  std::vector<Endpoint> peers;
  for (const auto& [key, endpoint] : found_) peers.push_back(endpoint);
  gossip_.found(peers);
}

}  // namespace troupe
