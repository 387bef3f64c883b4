#include "worker/http/next_turns.h"

#include <utility>

namespace troupe {

void NextTurns::compute(std::vector<TokenId> beginning, Hash128 salt) {
  if (beginning.empty() || computing_->load() >= kComputingMax) return;
  EngineRequest request;
  request.prompt = std::move(beginning);
  request.prompt_only = true;
  request.spec.background = true;
  request.spec.salt = salt;
  computing_->fetch_add(1);
  auto sink = [computing = computing_](const EngineOutput& piece) {
    if (piece.finish != FinishReason::kNone || !piece.error.ok()) computing->fetch_sub(1);
  };
  if (!engine_.submit(std::move(request), std::move(sink)).ok()) computing_->fetch_sub(1);
}

}  // namespace troupe
