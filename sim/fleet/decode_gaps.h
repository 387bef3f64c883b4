#pragma once

// The gaps between the tokens of all that decodes at a node, without a look at each of them at every step:
// whatever decodes has a token at the end of each step in which anything does, so its gaps are those between
// the ends of these steps; the first begins where its prompt was done. Kept are those that no later one
// exceeds, the longest first.

#include <cstdint>
#include <vector>

#include "common/core/time.h"

namespace troupe::sim {

class DecodeGaps {
 public:
  // From where on a request decodes. Step 0: it does not.
  struct Since {
    int64_t step = 0;          // at whose end it began
    int64_t decode_steps = 0;  // that there were by then
  };
  // A step is over; `decodes`: some request had another token by it.
  void step_over(TimePoint at, bool decodes);
  // A request's prompt was done with the last step.
  Since begin();
  void end(const Since& since) { decoding_ -= since.step > 0; }

  // A request that decodes has had so many tokens since.
  int32_t tokens(const Since& since) const {
    return static_cast<int32_t>(decode_steps_ - since.decode_steps);
  }
  TimePoint last_token() const { return ends_.front(); }  // REQUIRES: tokens() > 0
  Duration longest(const Since& since) const;

 private:
  int64_t step_ = 0, decode_steps_ = 0;  // numbered from 1
  int64_t decoding_ = 0;                 // requests
  std::vector<TimePoint> ends_;          // of the last step with decodes, and of those since
  struct Gap {
    int64_t step = 0;  // of what decodes since an earlier one
    Duration length{};
  };
  std::vector<Gap> gaps_;
};

}  // namespace troupe::sim
