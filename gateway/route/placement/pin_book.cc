#include "gateway/route/placement/pin_book.h"

#include <algorithm>
#include <utility>

namespace troupe::route {

std::string PinBook::refusal(const Wish& wish) const {
  int64_t count = 0, tokens = 0;
  for (const auto& [id, pin] : pins_) {
    if (pin.owner != wish.owner) continue;
    if (pin.key.set == wish.set && pin.model == wish.model) return "";
    count += 1;
    if (pin.model == wish.model) tokens += pin.tokens;
  }
  if (count >= options_.per_owner)
    return "you have " + std::to_string(count) +
           " pinned prefixes, the most that one may have (pins.per_owner)";
  const auto most = static_cast<int64_t>(options_.kv_share * static_cast<double>(wish.kv_tokens));
  if (wish.kv_tokens == 0 || tokens + wish.tokens <= most) return "";
  return "your pinned prefixes may take " + std::to_string(most) +
         " tokens of a worker's KV memory (pins.kv_share) and take " + std::to_string(tokens) +
         "; this one needs some " + std::to_string(wish.tokens) + " more";
}

bool PinBook::put(Pin pin) {
  const Hash128 id = pin.id;
  const bool kept = adopt(std::move(pin));
  tell(id);
  return kept;
}

void PinBook::erase(const Hash128& id) {
  drop(id);
  tell(id);
}

bool PinBook::adopt(Pin pin) {
  drop(pin.id);
  if (text_bytes_ + pin.body.size() > options_.text_bytes) return false;
  text_bytes_ += pin.body.size();
  turns_.push_back(pin.id);
  const Hash128 id = pin.id;
  pins_.emplace(id, std::move(pin));
  return true;
}

void PinBook::drop(const Hash128& id) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return;
  text_bytes_ -= found->second.body.size();
  pins_.erase(found);
  turns_.erase(std::find(turns_.begin(), turns_.end(), id));
}

const Pin* PinBook::find(const Hash128& id) const {
  const auto found = pins_.find(id);
  return found == pins_.end() ? nullptr : &found->second;
}

std::vector<const Pin*> PinBook::of(std::string_view owner) const {
  std::vector<const Pin*> pins;
  for (const auto& [id, pin] : pins_) {
    if (pin.owner == owner) pins.push_back(&pin);
  }
  std::sort(pins.begin(), pins.end(), [](const Pin* a, const Pin* b) { return a->id < b->id; });
  return pins;
}

void PinBook::expire(TimePoint now) {
  std::vector<Hash128> over;
  for (const auto& [id, pin] : pins_) {
    if (pin.expires && pin.until <= now) over.push_back(id);
  }
  for (const Hash128& id : over) drop(id);  // (in the store its lease ends)
}

void PinBook::placed(const Hash128& id, Pin::Place place) {
  const auto found = pins_.find(id);
  if (found == pins_.end()) return;
  found->second.places.push_back(place);
  tell(id);
}

void PinBook::keep_alone(const Hash128& id) {
  const auto found = pins_.find(id);
  if (found != pins_.end()) found->second.shared = false;
}

std::vector<Hash128> PinBook::shared() const {
  std::vector<Hash128> ids;
  for (const auto& [id, pin] : pins_) {
    if (pin.shared) ids.push_back(id);
  }
  return ids;
}

}  // namespace troupe::route
