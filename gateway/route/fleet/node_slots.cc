#include "gateway/route/fleet/node_slots.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/check.h"

namespace troupe::route {

bool NodeSlots::is_free(NodeIndex slot) const {
  const Slot& s = slots_[slot];
  return s.vacant && !s.listened && s.released_in < first_epoch_;
}

size_t NodeSlots::room() const {
  size_t room = slots_max_ - std::min(slots_max_, slots_.size());
  for (NodeIndex i = 0; i < slots_.size(); ++i) room += is_free(i) ? 1 : 0;
  return room;
}

std::optional<NodeIndex> NodeSlots::longest_free() const {
  std::optional<NodeIndex> found;
  for (NodeIndex i = 0; i < slots_.size(); ++i) {
    if (is_free(i) && (!found || slots_[i].released_in < slots_[*found].released_in)) found = i;
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

// An epoch without holds need not end for this slot.
void NodeSlots::release_slot(NodeIndex slot) {
  const Epoch now = first_epoch_ + holds_.size() - 1;
  slots_[slot].vacant = true;
  slots_[slot].released_in = holds_.back() == 0 ? now - 1 : now;
  if (holds_.back() > 0) holds_.push_back(0);
}

NodeSlots::Epoch NodeSlots::begin_hold() {
  holds_.back() += 1;
  return first_epoch_ + holds_.size() - 1;
}

void NodeSlots::end_hold(Epoch epoch) {
  TROUPE_CHECK(
      epoch >= first_epoch_ && epoch - first_epoch_ < holds_.size() && holds_[epoch - first_epoch_] > 0,
      "no hold of epoch " + std::to_string(epoch) + " is open");
  holds_[epoch - first_epoch_] -= 1;
  while (holds_.size() > 1 && holds_.front() == 0) {
    holds_.pop_front();
    first_epoch_ += 1;
  }
}

}  // namespace troupe::route
