#pragma once

// Edit of one logit before a draw (sampling.h has the formulas), on the host and on a GPU alike.

#include <cstdint>

#include "kernels/host_device.h"

namespace troupe {

struct LogitPenalties {
  float repetition = 1.0f;  // > 0; 1: off
  float presence = 0.0f;    // 0: off
  float frequency = 0.0f;   // 0: off
};

// One token of a row: its bias, and how often it was emitted.
struct LogitEdit {
  int32_t token = 0;
  int32_t emitted_count = 0;  // times in the answer; -1: neither there nor in the prompt, it has a bias only
  float bias = 0;
  float repetition = 0;  // its own repetition penalty in place of the row's; 0: none
};

// The edit of a token that is emitted again, or for the first time.
TROUPE_HOST_DEVICE inline LogitEdit once_more(LogitEdit edit) {
  edit.emitted_count = (edit.emitted_count > 0 ? edit.emitted_count : 0) + 1;
  return edit;
}

// One logit after its edit.
TROUPE_HOST_DEVICE inline float edited_logit(float logit, const LogitPenalties& penalties,
                                             const LogitEdit& edit) {
  logit += edit.bias;
  if (edit.emitted_count < 0) return logit;
  const float repetition = edit.repetition > 0 ? edit.repetition : penalties.repetition;
  if (repetition != 1.0f) logit = logit > 0 ? logit / repetition : logit * repetition;
  if (edit.emitted_count == 0) return logit;
  logit -= penalties.frequency * static_cast<float>(edit.emitted_count);
  return logit - penalties.presence;
}

}  // namespace troupe
