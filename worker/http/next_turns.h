#pragma once

// Prompts' beginnings that are computed behind an answer, because the conversation's next turn will begin
// with them: a history that is about to be cut (worker/input/truncate_chat.h) is then found cached behind its
// cut, too. No client waits for one, and all other requests go before it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/engine/engine.h"

namespace troupe {

class NextTurns {
 public:
  static constexpr int32_t kComputingMax = 16;  // at once; what comes beyond is left out

  // `engine` must outlive this. All calls on one thread.
  explicit NextTurns(Engine& engine) : engine_(engine) {}

  // Computes `beginning` in the background, within the cache that `salt` parts from others. An engine that
  // refuses it has no room, which is no error.
  void compute(std::vector<TokenId> beginning, Hash128 salt);

 private:
  Engine& engine_;
  // Outlives this where the engine does: it counts down on the engine's thread.
  const std::shared_ptr<std::atomic<int32_t>> computing_ = std::make_shared<std::atomic<int32_t>>(0);
};

}  // namespace troupe
