// A sketch is a histogram with four buckets an octave (19 % wide), in which every new answer makes the older
// ones count a little less: about the last hundred of a set matter, the last thousand over all. While a set
// has few answers of its own, a few of the average set stand in for the rest. The quantile is conditional: of
// an answer that has gone on for 300 tokens it asks only those that went as far.

#include "worker/schedule/output_length_predictor.h"

#include <algorithm>
#include <bit>

namespace troupe {

namespace {

constexpr float kSetKept = 0.99f;
constexpr float kAllKept = 0.999f;
constexpr double kStandIns = 8;  // answers of the average set that are added to a set's own

}  // namespace

OutputLengthPredictor::OutputLengthPredictor(int32_t sets_max) : sets_max_(static_cast<size_t>(sets_max)) {}

size_t OutputLengthPredictor::bucket_of(int32_t count) {
  if (count < 4) return static_cast<size_t>(std::max(count, 0));
  const auto value = static_cast<uint32_t>(count);
  const int octave = std::bit_width(value) - 1;  // >= 2
  const size_t quarter = value >> (octave - 2) & 3;
  return std::min(kBucketCount - 1, 4 * static_cast<size_t>(octave - 1) + quarter);
}

double OutputLengthPredictor::upper_end(size_t bucket) {
  if (bucket < 4) return static_cast<double>(bucket + 1);
  const size_t octave = bucket / 4 + 1;
  return static_cast<double>(uint64_t{5 + bucket % 4} << (octave - 2));
}

void OutputLengthPredictor::Sketch::add(size_t bucket, float kept) {
  for (float& count : counts) count *= kept;
  counts[bucket] += 1;
  total = total * kept + 1;
}

OutputLengthPredictor::Sketch& OutputLengthPredictor::sketch_of(Hash128 set) {
  const auto it = by_set_.find(set);
  if (it != by_set_.end()) return sketches_[it->second];
  if (sketches_.size() < sets_max_) {
    by_set_[set] = sketches_.size();
    sketches_.emplace_back().set = set;
    return sketches_.back();
  }
  const auto oldest =
      std::min_element(sketches_.begin(), sketches_.end(),
                       [](const Sketch& a, const Sketch& b) { return a.last_record < b.last_record; });
  by_set_.erase(oldest->set);
  by_set_[set] = static_cast<size_t>(oldest - sketches_.begin());
  *oldest = Sketch{};
  oldest->set = set;
  return *oldest;
}

void OutputLengthPredictor::record(Hash128 set, int32_t count) {
  const size_t bucket = bucket_of(count);
  all_.add(bucket, kAllKept);
  ++record_count_;
  if (set.is_zero() || sets_max_ == 0) return;
  Sketch& sketch = sketch_of(set);
  sketch.last_record = record_count_;
  sketch.add(bucket, kSetKept);
}

int32_t OutputLengthPredictor::predict(Hash128 set, int32_t emitted_count, double quantile) const {
  if (all_.total == 0) return 0;
  const auto it = by_set_.find(set);
  const Sketch* own = it == by_set_.end() ? nullptr : &sketches_[it->second];
  const double scale = own == nullptr ? 1 : kStandIns / static_cast<double>(all_.total);
  const auto weight = [&](size_t b) {
    return static_cast<double>(all_.counts[b]) * scale +
           (own == nullptr ? 0.0 : static_cast<double>(own->counts[b]));
  };
  // The part of emitted_count's bucket that lies beyond it.
  const size_t first = bucket_of(emitted_count);
  const double low = first == 0 ? 0 : upper_end(first - 1);
  const double emitted = static_cast<double>(emitted_count);
  const double part = std::clamp((upper_end(first) - emitted - 1) / (upper_end(first) - low), 0.0, 1.0);
  double total = weight(first) * part;
  for (size_t b = first + 1; b < kBucketCount; ++b) total += weight(b);
  // Longer than nearly everything before: as long again as a half, at least.
  if (total < 0.05) return emitted_count + std::max(16, emitted_count / 2);
  double left = total * quantile;
  for (size_t b = first; b < kBucketCount; ++b) {
    const double begin = b == first ? emitted + 1 : upper_end(b - 1);
    const double mass = weight(b) * (b == first ? part : 1);
    if (mass > 0 && left <= mass) {
      const double length = begin + (upper_end(b) - begin) * left / mass;
      return std::max(emitted_count + 1, static_cast<int32_t>(length));
    }
    left -= mass;
  }
  return emitted_count + std::max(16, emitted_count / 2);
}

}  // namespace troupe
