#include "common/grammar/regex/char_set.h"

#include <algorithm>

namespace troupe::grammar {

namespace {
constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
}  // namespace

CharSet CharSet::all() {
  return range(0, kLast);
}

CharSet CharSet::range(uint32_t first, uint32_t last) {
  CharSet set;
  last = std::min(last, kLast);
  if (first < kFirstSurrogate && first <= last)
    set.ranges_.push_back({first, std::min(last, kFirstSurrogate - 1)});
  if (last > kLastSurrogate && first <= last)
    set.ranges_.push_back({std::max(first, kLastSurrogate + 1), last});
  return set;
}

void CharSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  size_t count = 0;
  for (const Range& range : ranges_) {
    if (count > 0 && range.first <= ranges_[count - 1].last + 1) {
      ranges_[count - 1].last = std::max(ranges_[count - 1].last, range.last);
    } else {
      ranges_[count++] = range;
    }
  }
  ranges_.resize(count);
}

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalise();
}

CharSet CharSet::complement() const {
  CharSet result;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.add(CharSet::range(next, range.first - 1));
    next = range.last + 1;
  }
  if (next <= kLast) result.add(CharSet::range(next, kLast));
  return result;
}

CharSet CharSet::minus(const CharSet& other) const {
  CharSet kept = complement();
  kept.add(other);
  return kept.complement();
}

CharSet CharSet::with_both_cases() const {
  CharSet result = *this;
  for (uint32_t c = 'a'; c <= 'z'; ++c) {
    const uint32_t upper = c - 'a' + 'A';
    if (has(c) || has(upper)) {
      result.add(of(c));
      result.add(of(upper));
    }
  }
  return result;
}

bool CharSet::has(uint32_t c) const {
  for (const Range& range : ranges_)
    if (c >= range.first && c <= range.last) return true;
  return false;
}

}  // namespace troupe::grammar
