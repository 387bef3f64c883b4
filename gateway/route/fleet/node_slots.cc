#include "gateway/route/fleet/node_slots.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/check.h"

namespace troupe::route {

bool NodeSlots::is_free(NodeIndex slot) const {
  const Slot& s = slots_[slot];
  return s.vacant && !s.listened && s.vacated_in < first_era_;
}

size_t NodeSlots::room() const {
  size_t room = slots_max_ - std::min(slots_max_, slots_.size());
  for (NodeIndex i = 0; i < slots_.size(); ++i) room += is_free(i) ? 1 : 0;
  return room;
}

std::optional<NodeIndex> NodeSlots::longest_free() const {
  std::optional<NodeIndex> found;
  for (NodeIndex i = 0; i < slots_.size(); ++i) {
    if (is_free(i) && (!found || slots_[i].vacated_in < slots_[*found].vacated_in)) found = i;
  }
  return found;
}

StatusOr<NodeIndex> NodeSlots::take() {
  if (const auto free = longest_free()) {
    slots_[*free] = {};
    return *free;
  }
  if (slots_.size() >= slots_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(slots_max_,
                     " workers are followed, the most that are told apart (those included "
                     "that were removed and whose requests still run); remove some first"));
  }
  slots_.emplace_back();
  return static_cast<NodeIndex>(slots_.size() - 1);
}

// An era without holds need not end for this slot.
void NodeSlots::vacate(NodeIndex slot) {
  const Era now = first_era_ + holds_.size() - 1;
  slots_[slot].vacant = true;
  slots_[slot].vacated_in = holds_.back() == 0 ? now - 1 : now;
  if (holds_.back() > 0) holds_.push_back(0);
}

NodeSlots::Era NodeSlots::begin_hold() {
  holds_.back() += 1;
  return first_era_ + holds_.size() - 1;
}

void NodeSlots::end_hold(Era era) {
  TROUPE_CHECK(era >= first_era_ && era - first_era_ < holds_.size() && holds_[era - first_era_] > 0,
               "no hold of era " + std::to_string(era) + " is open");
  holds_[era - first_era_] -= 1;
  while (holds_.size() > 1 && holds_.front() == 0) {
    holds_.pop_front();
    first_era_ += 1;
  }
}

}  // namespace troupe::route
