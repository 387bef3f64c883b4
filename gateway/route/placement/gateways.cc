#include "gateway/route/placement/gateways.h"

#include <algorithm>

namespace troupe::route {
namespace {
// The most gateways that settings allow.
constexpr size_t kOthersMax = 1024;
}  // namespace

void Gateways::observe(const GatewayAnnouncement& own, const GatewayAnnouncement& announcement,
                       TimePoint now) {
  if (announcement.name == own.name) return;
  absl::erase_if(others_, [&](const auto& entry) { return now > entry.second.received_at + kSilence; });
  if (others_.size() >= kOthersMax && !others_.contains(announcement.name)) return;
  others_.insert_or_assign(announcement.name, Other{announcement, now});
}

bool Gateways::plans(const GatewayAnnouncement& own, TimePoint now) const {
  uint64_t most = own.nodes;
  for (const auto& [name, other] : others_) {
    if (now <= other.received_at + kSilence && same_kind(own, other.announcement))
      most = std::max<uint64_t>(most, other.announcement.nodes);
  }
  const auto fit = [most](const GatewayAnnouncement& announcement) {
    return uint64_t{2} * announcement.nodes > most;
  };
  if (most == 0) return true;  // nothing to plan but what all plan alike
  if (!fit(own)) return false;
  if (own.table.planner == own.name) return true;
  for (const auto& [name, other] : others_) {
    if (now > other.received_at + kSilence || !same_kind(own, other.announcement) || !fit(other.announcement))
      continue;
    if (name == own.table.planner || name < own.name) return false;
  }
  return true;
}

bool Gateways::may_plan(const GatewayAnnouncement& own, TimePoint now) const {
  for (const auto& [name, other] : others_) {
    if (now > other.received_at + kSilence || !same_kind(own, other.announcement)) continue;
    if (other.announcement.nodes > 0 && uint64_t{2} * own.nodes <= other.announcement.nodes) return false;
    if (other.announcement.table > own.table) return false;
  }
  return true;
}

GatewayShard Gateways::place(const Hash128& own, TimePoint now) const {
  GatewayShard place;
  for (const auto& [name, other] : others_) {
    if (now > other.received_at + kSilence) continue;
    place.of += 1;
    place.index += name < own ? 1 : 0;
  }
  return place;
}

bool Gateways::has_stale_table(const Hash128& gateway, const GatewayAnnouncement& own) const {
  const auto it = others_.find(gateway);
  return it != others_.end() && same_kind(own, it->second.announcement) &&
         it->second.announcement.table < own.table;
}

}  // namespace troupe::route
