#pragma once

// How long answers are: learned online, a set at a time, because personas differ (a poet, a teacher, a
// yes-man) more than anything else that is known before the first token. Pure; not thread-safe; bounded.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/block_hash.h"

namespace troupe {

class OutputLengthPredictor {
 public:
  // At most `sets_max` sets are kept apart; beyond that the one that has not answered for longest is
  // forgotten.
  explicit OutputLengthPredictor(int32_t sets_max);

  // An answer of `set` (zero: of none) ended after `count` tokens, whatever ended it.
  void record(Hash128 set, int32_t count);
  // Returns the length that a share `quantile` of the answers of `set` stay within, among those longer than
  // `emitted_count`; it is more than emitted_count. A set with few answers counts as the average one. 0:
  // nothing was recorded yet.
  int32_t predict(Hash128 set, int32_t emitted_count, double quantile) const;

 private:
  static constexpr size_t kBucketCount = 88;  // lengths up to 2^22, four buckets an octave
  struct Sketch {
    std::array<float, kBucketCount> counts{};
    float total = 0;
    uint64_t last_record = 0;
    Hash128 set;

    void add(size_t bucket, float kept);
  };
  static size_t bucket_of(int32_t count);
  static double upper_end(size_t bucket);  // the first length beyond it
  Sketch& sketch_of(Hash128 set);

  size_t sets_max_;
  Sketch all_;
  std::vector<Sketch> sketches_;
  absl::flat_hash_map<Hash128, size_t> by_set_;
  uint64_t record_count_ = 0;
};

}  // namespace troupe
