#include "gateway/route/placement/pin_importer.h"

#include <algorithm>
#include <utility>

namespace troupe::route {
namespace {

bool same(const Pin::Place& a, const Pin::Place& b) {
  return a.node == b.node && a.incarnation == b.incarnation;
}

std::vector<Pin::Place>::iterator find_place(std::vector<Pin::Place>& places, const Pin::Place& place) {
  return std::find_if(places.begin(), places.end(),
                      [&place](const Pin::Place& other) { return same(other, place); });
}

}  // namespace

PinImporter::PinImporter(PinRegistry& registry) : registry_(registry) {
  registry_.on_change = [this](const Hash128& id, PinChange change) { changed(id, change); };
}

void PinImporter::changed(const Hash128& id, PinChange change) {
  if (change == PinChange::kMade && removed_.erase(id) > 0) std::erase(removed_order_, id);
  if (change != PinChange::kRemoved) return;
  if (removed_.try_emplace(id).second) removed_order_.push_back(id);
  if (removed_order_.size() <= kRemovedMax) return;
  removed_.erase(removed_order_.front());
  removed_order_.pop_front();
}

const Pin* PinImporter::imported(const Hash128& id) const {
  const Pin* const pin = registry_.find(id);
  return pin != nullptr && pin->imported ? pin : nullptr;
}

std::vector<const Pin*> PinImporter::take(const Pin::Place& place, std::span<const Pin> listed) {
  std::vector<const Pin*> to_remove;
  absl::flat_hash_set<Hash128> ids;
  for (const Pin& pin : listed) {
    ids.insert(pin.id);
    const auto removed = removed_.find(pin.id);
    if (removed == removed_.end()) {
      take_one(place, pin);
    } else if (find_place(removed->second, place) != removed->second.end()) {
      to_remove.push_back(&pin);
    } else {
      removed->second.push_back(place);
    }
  }
  for (auto& [id, places] : removed_) {
    if (!ids.contains(id))
      std::erase_if(places, [&place](const Pin::Place& one) { return one.node == place.node; });
  }
  drop_unlisted(place, ids);
  return to_remove;
}

// (A pin is small without its request: it is replaced whole.)
void PinImporter::take_one(const Pin::Place& place, const Pin& listed) {
  const Pin* const known = registry_.find(listed.id);
  if (known != nullptr && !known->imported) return;
  if (known == nullptr && taken_.size() >= kTakenMax) return;
  Pin pin = listed;
  pin.imported = true;
  pin.shared = false;
  pin.body.clear();
  if (known != nullptr) {
    pin.places = known->places;
    std::erase_if(pin.places, [&place](const Pin::Place& one) { return one.node == place.node; });
    if (known->expires && pin.expires) pin.until = std::max(pin.until, known->until);
  }
  pin.places.push_back({place.node, place.incarnation, pin.expires ? listed.until : TimePoint::max()});
  const Hash128 id = pin.id;
  if (registry_.adopt(std::move(pin))) taken_.insert(id);
}

void PinImporter::drop_unlisted(const Pin::Place& place, const absl::flat_hash_set<Hash128>& listed) {
  std::vector<Hash128> here;
  for (const Hash128& id : taken_) {
    if (!listed.contains(id)) here.push_back(id);
  }
  for (const Hash128& id : here) {
    const Pin* const known = imported(id);
    if (known == nullptr) {
      taken_.erase(id);
      continue;
    }
    Pin pin = *known;
    if (std::erase_if(pin.places, [&place](const Pin::Place& one) { return one.node == place.node; }) == 0)
      continue;
    if (!pin.places.empty()) {
      registry_.adopt(std::move(pin));
    } else {
      registry_.drop(id);
      taken_.erase(id);
    }
  }
}

}  // namespace troupe::route
