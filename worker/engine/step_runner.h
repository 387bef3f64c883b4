#pragma once

// The engine's interface to a model: one forward pass. The engine depends on nothing else, so tests and a
// worker without a model implement it too.

#include <memory>
#include <utility>

#include "common/core/status.h"
#include "worker/model/runner.h"
#include "worker/schedule/batch.h"

namespace troupe {

// Called by one thread.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Starts the step, or computes it. An error fails only this step's requests: the next step may succeed.
  virtual Status launch(const Batch& batch, const StepDraws& draws) = 0;
  // Returns the results of the oldest launched step that is not collected. REQUIRES: there is one.
  virtual StepOutput collect() = 0;
  // Whether a step may be launched before the one before it is collected; it then refers to that step's
  // tokens by their rows (Scheduler::advance). Not after a step whose logits are wanted.
  virtual bool runs_ahead() const { return false; }

  // Whether collect() and visit_rows() provide logits; without them there are no log-probabilities.
  virtual bool has_logits() const { return false; }
  // As ModelRunner's. REQUIRES: has_logits(), and the last launched step is collected.
  virtual void visit_rows(int32_t /*first*/, int32_t /*count*/, const ModelRunner::RowVisitor& /*visit*/) {}
  virtual void visit_hidden(int32_t /*first*/, int32_t /*count*/, const ModelRunner::RowVisitor& /*visit*/) {}
};

class ModelStepRunner final : public StepRunner {
 public:
  ModelStepRunner(std::unique_ptr<ModelRunner> runner, bool runs_ahead)
      : runner_(std::move(runner)), runs_ahead_(runs_ahead) {}
  Status launch(const Batch& batch, const StepDraws& draws) override { return runner_->launch(batch, draws); }
  StepOutput collect() override { return runner_->collect(); }
  bool runs_ahead() const override { return runs_ahead_; }
  bool has_logits() const override { return true; }
  void visit_rows(int32_t first, int32_t count, const ModelRunner::RowVisitor& visit) override {
    runner_->visit_rows(first, count, visit);
  }
  void visit_hidden(int32_t first, int32_t count, const ModelRunner::RowVisitor& visit) override {
    runner_->visit_hidden(first, count, visit);
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
  const bool runs_ahead_;
};

}  // namespace troupe
