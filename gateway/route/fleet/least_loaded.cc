#include "gateway/route/fleet/least_loaded.h"

#include <array>

namespace troupe::route {
namespace {

struct Found {
  float key = LeastLoaded::kAbsent;
  uint32_t slot = UINT32_MAX;
};

// Keeps the `count` least of all offered; an equal one comes after those already there.
template <size_t kMax>
class Best {
 public:
  // REQUIRES: count > 0.
  explicit Best(size_t count) : limit_(std::min(count, kMax)) {}
  void offer(float key, uint32_t slot) {
    if (key < below_) insert(key, slot);
  }
  size_t size() const { return count_; }
  const Found& operator[](size_t i) const { return items_[i]; }

 private:
  void insert(float key, uint32_t slot) {
    size_t at = count_ < limit_ ? count_++ : count_ - 1;
    for (; at > 0 && items_[at - 1].key > key; --at) items_[at] = items_[at - 1];
    items_[at] = Found{key, slot};
    if (count_ == limit_) below_ = items_[count_ - 1].key;
  }

  float below_ = LeastLoaded::kAbsent;  // what is no less is not among them
  size_t limit_;
  size_t count_ = 0;
  std::array<Found, kMax> items_{};
};

// Every index below `count`, from a random one on: equal keys then fall at random.
template <typename Visit>
void round(size_t count, Random& random, Visit&& visit) {
  const size_t start = random.below(static_cast<uint32_t>(count));
  for (size_t i = start; i < count; ++i) visit(static_cast<uint32_t>(i));
  for (size_t i = 0; i < start; ++i) visit(static_cast<uint32_t>(i));
}

}  // namespace

size_t LeastLoaded::find(std::span<uint32_t> out, Random& random) const {
  if (minima_.empty() || out.empty()) return 0;
  Best<kBlocksLooked> blocks(kBlocksLooked);
  round(minima_.size(), random, [&](uint32_t block) { blocks.offer(minima_[block], block); });
  Best<16> best(out.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    const uint32_t block = blocks[b].slot;
    round(slots_in(block), random,
          [&](uint32_t i) { best.offer(keys_[block * kBlock + i], i * blocks_ + block); });
  }
  for (size_t i = 0; i < best.size(); ++i) out[i] = best[i].slot;
  return best.size();
}

}  // namespace troupe::route
