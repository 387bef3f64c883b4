#include "common/net/body_shares.h"

#include <unordered_map>

namespace troupe {

void BodyShares::hold(Share& share, uint64_t bytes, TimePoint now) {
  if (share.bytes == 0 && bytes > 0) {
    share.place = shares_.size();
    shares_.push_back(&share);
  }
  bytes_ += bytes - share.bytes;
  if (share.bytes > 0 && bytes == 0) {
    shares_[share.place] = shares_.back();
    shares_[share.place]->place = share.place;
    shares_.pop_back();
  }
  share.bytes = bytes;
  if (bytes >= share.mark && bytes < share.mark + kSmallBodyBytes && share.marked_at != TimePoint{}) return;
  share.mark = bytes;
  share.marked_at = now;
}

void BodyShares::release(Share& share) {
  hold(share, 0, TimePoint{});
  share.mark = 0;
  share.marked_at = TimePoint{};
  share.on_its_way = true;
}

// Looks at all of them, which happens once for each body that is given up.
BodyShares::Share* BodyShares::too_much(Share& newest, uint64_t bytes_max, TimePoint now) const {
  if (bytes_ <= bytes_max || newest.bytes <= kSmallBodyBytes) return nullptr;
  std::unordered_map<std::string_view, uint64_t> by_address;
  for (const Share* share : shares_)
    if (share->on_its_way) by_address[share->address] += share->bytes;
  const uint64_t of_newest = by_address[newest.address];
  Share* found = nullptr;
  uint64_t most = 0;  // of the address of `found`
  for (Share* share : shares_) {
    if (!share->on_its_way || share->bytes <= kSmallBodyBytes) continue;
    const uint64_t of_address = by_address[share->address];
    if (of_address <= of_newest && now < share->marked_at + kStallsAfter) continue;
    if (found != nullptr && (of_address < most || (of_address == most && share->bytes <= found->bytes)))
      continue;
    found = share;
    most = of_address;
  }
  return found == nullptr ? &newest : found;
}

}  // namespace troupe
