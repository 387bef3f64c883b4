#include "gateway/route/placement/pin_registry.h"

#include <algorithm>
#include <utility>

namespace troupe::route {

std::string PinRegistry::refusal(const Wish& wish) const {
  const Hash128 content = hash_bytes(wish.body);
  int64_t count = 0, tokens = 0;
  size_t bytes = 0, all_bytes = text_bytes_;
  bool again = false;
  const auto add = [&](const Pin& pin) {
    if (pin.owner != wish.owner) return;
    if (pin.imported && !wish.set.is_zero() && pin.key.set == wish.set && pin.model == wish.model) return;
    again |= pin.content == content && pin.model == wish.model;
    count += 1;
    bytes += pin.body.size();
    if (pin.model == wish.model) tokens += pin.tokens;
  };
  for (const auto& [id, pin] : pins_) add(pin);
  for (const Pin& pin : reserved_) {
    add(pin);
    all_bytes += pin.body.size();
  }
  if (again) return "";
  if (count >= options_.per_owner)
    return "you have " + std::to_string(count) +
           " pinned prefixes, the most that one may have (pins.per_owner)";
  const size_t share = options_.text_bytes / kOwnersOfText;
  if (bytes + wish.body.size() > share)
    return "the requests of your pinned prefixes may have " + std::to_string(share) +
           " bytes in all (a quarter of pins.text_bytes) and have " + std::to_string(bytes);
  if (all_bytes + wish.body.size() > options_.text_bytes)
    return "the requests of all pinned prefixes have the most bytes that they may (pins.text_bytes)";
  const auto most = static_cast<int64_t>(options_.kv_share * static_cast<double>(wish.kv_tokens));
  if (wish.kv_tokens == 0 || tokens + wish.tokens <= most) return "";
  return "your pinned prefixes may take " + std::to_string(most) +
         " tokens of a worker's KV memory (pins.kv_share) and take " + std::to_string(tokens) +
         "; this one needs some " + std::to_string(wish.tokens) + " more";
}

PinRegistry::Reservation::Reservation(PinRegistry& registry, const Wish& wish) : registry_(&registry) {
  Pin pin;
  pin.owner = wish.owner;
  pin.model = wish.model;
  pin.body = wish.body;
  pin.content = hash_bytes(wish.body);
  pin.tokens = wish.tokens;
  at_ = registry.reserved_.insert(registry.reserved_.end(), std::move(pin));
}

PinRegistry::Reservation& PinRegistry::Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  end();
  registry_ = std::exchange(other.registry_, nullptr);
  at_ = other.at_;
  return *this;
}

void PinRegistry::Reservation::end() {
  if (registry_ != nullptr) registry_->reserved_.erase(at_);
  registry_ = nullptr;
}

bool PinRegistry::put(Pin pin) {
  const Hash128 id = pin.id;
  const bool kept = adopt(std::move(pin));
  if (kept) notify(id, PinChange::kMade);
  return kept;
}

void PinRegistry::erase(const Hash128& id) {
  drop(id);
  notify(id, PinChange::kRemoved);
}

// (Where there is no room the last one of the name stays.)
bool PinRegistry::adopt(Pin pin) {
  const Pin* const last = find(pin.id);
  const size_t freed = last == nullptr ? 0 : last->body.size();
  if (text_bytes_ - freed + pin.body.size() > options_.text_bytes) return false;
  drop(pin.id);
  changes_ += pin.imported ? 0 : 1;
  text_bytes_ += pin.body.size();
  turns_.push_back(pin.id);
  pin.content = hash_bytes(pin.body);
  const Hash128 id = pin.id;
  pins_.emplace(id, std::move(pin));
  return true;
}

void PinRegistry::drop(const Hash128& id) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return;
  changes_ += found->second.imported ? 0 : 1;
  text_bytes_ -= found->second.body.size();
  pins_.erase(found);
  turns_.erase(std::find(turns_.begin(), turns_.end(), id));
}

const Pin* PinRegistry::find(const Hash128& id) const {
  const auto found = pins_.find(id);
  return found == pins_.end() ? nullptr : &found->second;
}

std::vector<const Pin*> PinRegistry::of(std::string_view owner) const {
  std::vector<const Pin*> pins = all();
  std::erase_if(pins, [owner](const Pin* pin) { return pin->owner != owner; });
  return pins;
}

std::vector<const Pin*> PinRegistry::all() const {
  std::vector<const Pin*> pins;
  pins.reserve(pins_.size());
  for (const auto& [id, pin] : pins_) pins.push_back(&pin);
  std::sort(pins.begin(), pins.end(), [](const Pin* a, const Pin* b) { return a->id < b->id; });
  return pins;
}

void PinRegistry::expire(TimePoint now) {
  std::vector<Hash128> over;
  for (const auto& [id, pin] : pins_) {
    if (pin.expires && pin.until <= now) over.push_back(id);
  }
  for (const Hash128& id : over) {
    drop(id);
    notify(id, PinChange::kExpired);  // (in the store its lease ends)
  }
}

bool PinRegistry::placed(const Hash128& id, Pin::Place place) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return false;
  found->second.places.push_back(place);
  changes_ += 1;
  notify(id, PinChange::kPlaced);
  return true;
}

void PinRegistry::unplace(const Hash128& prefix) {
  for (auto& [id, pin] : pins_) {
    if (pin.prefix != prefix) continue;
    pin.places.clear();
    pin.claims.clear();
    changes_ += 1;
    notify(id, PinChange::kPlaced);
  }
}

void PinRegistry::update_expiry(const Hash128& prefix, const Pin::Place& place) {
  for (auto& [id, pin] : pins_) {
    if (pin.prefix != prefix) continue;
    for (Pin::Place& known : pin.places) {
      if (known.node == place.node && known.incarnation == place.incarnation) known.ends = place.ends;
    }
  }
}

bool PinRegistry::is_of_another(const Hash128& prefix, std::string_view owner) const {
  return std::any_of(pins_.begin(), pins_.end(), [&](const auto& entry) {
    return entry.second.prefix == prefix && entry.second.owner != owner;
  });
}

void PinRegistry::keep_alone(const Hash128& id) {
  const auto found = pins_.find(id);
  if (found != pins_.end()) found->second.shared = false;
}

std::vector<Hash128> PinRegistry::shared() const {
  std::vector<Hash128> ids;
  for (const auto& [id, pin] : pins_) {
    if (pin.shared) ids.push_back(id);
  }
  return ids;
}

}  // namespace troupe::route
