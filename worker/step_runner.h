#pragma once

// What the engine needs of a model: one forward pass. The engine knows no more, so a worker without a model
// and tests put something else here.

#include <memory>

#include "common/core/status.h"
#include "worker/model/runner.h"
#include "worker/schedule/batch.h"

namespace troupe {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Computes the step. An error fails this step's requests and nothing else: the next step may work. Called
  // by one thread.
  virtual StatusOr<StepOutput> run(const Batch& batch, const StepDraws& draws) = 0;

  // Whether run() and visit_rows() show logits: else no log-probability can be told.
  virtual bool has_logits() const { return false; }
  // As ModelRunner's. REQUIRES: has_logits(), and the last run() was ok.
  virtual void visit_rows(int32_t /*first*/, int32_t /*count*/, const ModelRunner::RowVisitor& /*visit*/) {}
};

class ModelStepRunner final : public StepRunner {
 public:
  explicit ModelStepRunner(std::unique_ptr<ModelRunner> runner) : runner_(std::move(runner)) {}
  StatusOr<StepOutput> run(const Batch& batch, const StepDraws& draws) override {
    return runner_->run(batch, draws);
  }
  bool has_logits() const override { return true; }
  void visit_rows(int32_t first, int32_t count, const ModelRunner::RowVisitor& visit) override {
    runner_->visit_rows(first, count, visit);
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace troupe
