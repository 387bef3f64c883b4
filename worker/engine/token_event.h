#pragma once

// A token on its way from the compute thread to the text-out thread.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/api/api.h"
#include "common/core/time.h"
#include "worker/kv/types.h"
#include "worker/model/log_softmax.h"

namespace troupe {

// The event of a request that only computes its prompt: no token is emitted.
inline constexpr TokenId kNoToken = -1;

// A sampled token on its way to the client.
struct TokenEvent {
  RequestId id = 0;
  TokenId token = kNoToken;
  FinishReason finish = FinishReason::kNone;  // kStop: `token` ended the answer and is no part of its text
  bool is_stop_token = false;                 // of the request's; else kStop is the model's own end
  int32_t cached_count = 0;                   // tokens found cached
  TimePoint at{};                             // when its step ended
  std::unique_ptr<TokenScore> score;          // both null unless requested
  std::unique_ptr<std::vector<TokenScore>> prompt_scores;
  std::vector<float> pooled;  // of a prompt that is pooled
};

}  // namespace troupe
