#pragma once

// What the engine needs of a model: one forward pass. The engine knows no more, so a worker without a model
// and tests put something else here.

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
  // Begins the step, or computes it. An error fails this step's requests and nothing else: the next step may
  // work.
  virtual Status launch(const Batch& batch, const StepDraws& draws) = 0;
  // What the oldest launched step that was not collected gave. REQUIRES: there is one.
  virtual StepOutput collect() = 0;
  // Whether a step may be launched while the one before it is not collected, and then knows its tokens by
  // their places (Scheduler::advance). Not behind one whose logits are wanted.
  virtual bool runs_ahead() const { return false; }

  // Whether collect() and visit_rows() show logits: else no log-probability can be told.
  virtual bool has_logits() const { return false; }
  // As ModelRunner's. REQUIRES: has_logits(), and the last step launched is collected.
  virtual void visit_rows(int32_t /*first*/, int32_t /*count*/, const ModelRunner::RowVisitor& /*visit*/) {}
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

 private:
  std::unique_ptr<ModelRunner> runner_;
  const bool runs_ahead_;
};

}  // namespace troupe
