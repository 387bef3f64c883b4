#include "sim/fleet/decode_gaps.h"

#include <algorithm>

namespace troupe::sim {

void DecodeGaps::step_over(TimePoint at, bool decodes) {
  step_ += 1;
  if (decodes) {
    decode_steps_ += 1;
    // One gap for each step since the last decodes: of the requests whose last token came at its end.
    int64_t step = step_ - static_cast<int64_t>(ends_.size());
    for (const TimePoint end : ends_) {
      const Duration gap = at - end;
      while (!gaps_.empty() && gaps_.back().length <= gap) gaps_.pop_back();
      gaps_.push_back({++step, gap});
    }
    ends_.clear();
  } else if (decoding_ == 0) {
    gaps_.clear();
    ends_.clear();
  }
  ends_.push_back(at);
}

DecodeGaps::Since DecodeGaps::begin() {
  decoding_ += 1;
  return {step_, decode_steps_};
}

Duration DecodeGaps::longest(const Since& since) const {
  const auto first = std::upper_bound(gaps_.begin(), gaps_.end(), since.step,
                                      [](int64_t step, const Gap& gap) { return step < gap.step; });
  return first == gaps_.end() ? Duration{} : first->length;
}

}  // namespace troupe::sim
