#pragma once

// A model whose every token depends on every KV slot it is given: wrong blocks, a lost or a foreign token
// anywhere in the context change the answer. One pure function, reference(), thus checks the whole engine.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/worker/schedule/fake_kv.h"
#include "worker/engine/step_runner.h"
#include "worker/model/logit_adjuster.h"
#include "worker/model/sampler.h"

namespace troupe::testing {

class FakeModel {
 public:
  // `alphabet`: the tokens it may emit.
  FakeModel(std::vector<TokenId> alphabet, int32_t vocab_size)
      : alphabet_(std::move(alphabet)), vocab_size_(vocab_size) {}

  int32_t vocab_size() const { return vocab_size_; }

  // The "attention" over a context's slots, in order.
  static Hash128 attend(Hash128 state, Hash128 slot) {
    if (state == FakeKv::kNan || slot == FakeKv::kNan) return FakeKv::kNan;
    return {state.hi * 0x9E3779B97F4A7C15u + slot.hi, std::rotl(state.lo, 7) ^ (slot.lo + state.hi)};
  }

  void fill_logits(Hash128 state, float* out) const {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    std::fill(out, out + vocab_size_, state == FakeKv::kNan ? std::nanf("") : -kInf);
    if (state == FakeKv::kNan) return;
    for (TokenId token : alphabet_) {
      const uint64_t mixed = mix_hash(state, {0, static_cast<uint64_t>(token)});
      out[token] = static_cast<float>(mixed >> 40) * (5.0f / (1 << 24));
    }
  }

  // Returns the logits after a context.
  std::vector<float> logits_after(const std::vector<TokenId>& context) const {
    Hash128 slot, state;
    for (TokenId token : context) {
      slot = FakeKv::extend(slot, token);
      state = attend(state, slot);
    }
    std::vector<float> logits(static_cast<size_t>(vocab_size_));
    fill_logits(state, logits.data());
    return logits;
  }

  // A context that the model has read.
  struct Read {
    Hash128 slot, state;
    void feed(TokenId token) {
      slot = FakeKv::extend(slot, token);
      state = attend(state, slot);
    }
  };

  // The expected answer to `prompt`, whatever else is running.
  std::vector<TokenId> reference(const std::vector<TokenId>& prompt, const SamplingParams& sampling,
                                 int count, const std::optional<Guidance>& guidance = std::nullopt) const {
    const auto adjuster = LogitAdjuster::make(sampling, prompt);
    Read read, negative;
    for (TokenId token : prompt) read.feed(token);
    for (TokenId token : guidance ? guidance->negative_prompt : std::vector<TokenId>()) negative.feed(token);
    std::vector<TokenId> answer;
    std::vector<float> logits(static_cast<size_t>(vocab_size_)), negative_logits(logits.size());
    float mu = sampling.chain ? first_mirostat_mu(*sampling.chain) : 0;
    for (int i = 0; i < count; ++i) {
      fill_logits(read.state, logits.data());
      if (guidance) {
        fill_logits(negative.state, negative_logits.data());
        guide_logits(logits, negative_logits, guidance->scale);
      }
      SampleRow row{.draw = draw_params(sampling, static_cast<uint64_t>(i))};
      if (adjuster != nullptr) {
        row.penalties = adjuster->penalties();
        row.edits = adjuster->edits(static_cast<uint64_t>(i));
      }
      if (sampling.chain) row.chain = &*sampling.chain;
      row.mirostat_mu = &mu;
      answer.push_back(edit_and_draw(logits, row));
      if (adjuster != nullptr) adjuster->add_emitted(answer.back());
      read.feed(answer.back());
      negative.feed(answer.back());
    }
    return answer;
  }

 private:
  std::vector<TokenId> alphabet_;
  int32_t vocab_size_;
};

class FakeRunner final : public StepRunner {
 public:
  // `before_step` runs first; its error becomes the step's.
  using Hook = std::function<Status(const Batch&)>;
  struct Options {
    int32_t block_size = 0;
    int32_t block_count = 0;
    bool runs_ahead = false;
    Hook before_step = {};
    std::atomic<BlockId>* bad_block = nullptr;  // corrupt before the next step, and taken; below zero: none
  };
  FakeRunner(const FakeModel* model, Options options)
      : model_(model), kv_(options.block_size, options.block_count), options_(std::move(options)) {}

  Status launch(const Batch& batch, const StepDraws& draws) override {
    EXPECT_LE(under_way_.size(), options_.runs_ahead ? 1u : 0u);
    if (options_.before_step) TROUPE_RETURN_IF_ERROR(options_.before_step(batch));
    if (options_.bad_block != nullptr) {
      if (const BlockId bad = options_.bad_block->exchange(-1); bad >= 0) kv_.mark_corrupt(bad);
    }
    kv_.copy(batch.copies);
    int64_t rows = 0;
    logits_.resize(batch.items.size() * static_cast<size_t>(model_->vocab_size()));
    for (const BatchItem& item : batch.items) {
      compute(item);
      if (!item.samples) continue;
      fill_row(item, static_cast<int32_t>(item.ids.size()) - 1,
               logits_.data() + rows++ * model_->vocab_size());
    }
    items_ = batch.items;
    tables_.clear();
    for (BatchItem& item : items_) {  // copied, as the scheduler's own need not outlive the call
      item.blocks = tables_.emplace_back(item.blocks.begin(), item.blocks.end());
    }
    EXPECT_EQ(static_cast<size_t>(rows), draws.rows.size());
    if (rows > 0 && draws.before_draws != nullptr) (*draws.before_draws)();
    draw(draws);
    return absl::OkStatus();
  }
  StepOutput collect() override {
    collected_ = std::move(under_way_.front());
    under_way_.pop_front();
    const auto shown_count = static_cast<int64_t>(shown_.size()) / model_->vocab_size();
    return {collected_, Tensor::make(shown_.data(), DType::kFloat32, {shown_count, model_->vocab_size()})};
  }
  bool runs_ahead() const override { return options_.runs_ahead; }

  bool has_logits() const override { return true; }
  void visit_rows(int32_t first, int32_t count, const ModelRunner::RowVisitor& visit) override {
    std::fill(logits_.begin(), logits_.end(), -1.0f);  // as in a model: overwrites the logits of run()
    std::vector<float> row(static_cast<size_t>(model_->vocab_size()));
    int32_t begin = 0;
    for (const BatchItem& item : items_) {
      const int32_t end = begin + static_cast<int32_t>(item.ids.size());
      for (int32_t r = std::max(begin, first); r < std::min(end, first + count); ++r) {
        fill_row(item, r - begin, row.data());
        visit(r, row);
      }
      begin = end;
    }
  }

 private:
  // Ids below zero are rows of the tokens that the step before drew.
  void compute(BatchItem item) {
    std::vector<TokenId> ids(item.ids.begin(), item.ids.end());
    for (TokenId& id : ids) {
      if (id < 0) id = drawn_.at(static_cast<size_t>(-1 - id));
    }
    item.ids = ids;
    kv_.compute(item, Hash128{});
  }

  void draw(const StepDraws& draws) {
    const auto vocab = static_cast<size_t>(model_->vocab_size());
    const auto row_of = [&](int32_t row) {
      return std::span<float>(logits_).subspan(static_cast<size_t>(row) * vocab, vocab);
    };
    for (const GuidedRow& g : draws.guided) guide_logits(row_of(g.row), row_of(g.negative_row), g.scale);
    shown_.clear();
    for (const int32_t row : draws.shown) {
      const float* const logits = logits_.data() + static_cast<size_t>(row) * vocab;
      shown_.insert(shown_.end(), logits, logits + vocab);
    }
    std::vector<TokenId> tokens;
    for (size_t s = 0; s < draws.rows.size(); ++s) {
      const SampleRow& row = draws.rows[s];
      const std::span<float> logits(logits_.data() + s * vocab, vocab);
      EXPECT_LT(row.last_drawn, static_cast<int32_t>(drawn_.size()));
      tokens.push_back(edit_and_draw(logits, row, drawn_.data()));
    }
    drawn_ = tokens;
    under_way_.push_back(std::move(tokens));
  }

  // Fills in the logits after the item's `row`th id.
  void fill_row(const BatchItem& item, int32_t row, float* out) const {
    Hash128 state;
    for (int32_t p = 0; p <= item.start + row; ++p) {
      state = FakeModel::attend(state, kv_.read(item.blocks, p));
    }
    model_->fill_logits(state, out);
  }

  const FakeModel* model_;
  FakeKv kv_;
  Options options_;
  std::vector<float> logits_, shown_;
  std::vector<TokenId> drawn_;                  // by the last step
  std::deque<std::vector<TokenId>> under_way_;  // tokens of steps that are not collected
  std::vector<TokenId> collected_;
  std::vector<BatchItem> items_;  // of the last step
  std::deque<std::vector<BlockId>> tables_;
};

}  // namespace troupe::testing
