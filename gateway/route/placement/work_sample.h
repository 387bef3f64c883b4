#pragma once

// The work that a gateway sends, by set, as answers report it; and the sample of it that the other gateways
// plan by where workers do not report their work. (Hot sets go by estimates, ClusterState::sets, which have
// to be up to date at once.)

#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/set_stats.h"
#include "gateway/route/placement/table_codec.h"

namespace troupe::route {

// Not thread-safe.
class WorkSample {
 public:
  // As SetStats.
  WorkSample(size_t sets_max, Duration half_life, Duration tick) : work_(sets_max, half_life, tick) {}

  // False: workers report their work, and nothing is noted.
  void use(bool used) { used_ = used; }
  // A request's work as estimated when it is sent, its set's tokens where they are known, and the correction
  // once it has ended.
  void note(const Hash128& set, std::string_view model, int64_t work, TimePoint now) {
    if (used_) work_.note(set, model, work, now);
  }
  void learn_tokens(const Hash128& set, int64_t tokens) {
    if (used_) work_.learn_tokens(set, tokens);
  }
  void correct(const Hash128& set, int64_t by, TimePoint now) {
    if (used_) work_.correct(set, by, now);
  }
  const SetStats& work() const { return work_; }
  SetLoads loads() { return work_.loads(); }

  // The next sample, for the other gateways.
  void take(const SetLoads& loads) {
    sample_ = loads;
    number_ += 1;
  }
  uint64_t number() const { return number_; }  // of the last sample; 0: none yet
  // The heaviest sets of the last sample.
  std::string message() const { return encode_set_loads(sample_); }
  std::string message(size_t sets_max) const { return encode_set_loads(sample_, sets_max); }

 private:
  SetStats work_;
  SetLoads sample_;
  uint64_t number_ = 0;
  bool used_ = true;
};

}  // namespace troupe::route
