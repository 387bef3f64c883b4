#pragma once

// An engine over the fake model, and sinks that a test can wait for.

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/worker/fake_runner.h"
#include "worker/engine/engine.h"

namespace troupe::testing {

// Collects one request's pieces. Outlives the engine's use of its sink.
class Collector {
 public:
  EngineSink sink() {
    return [this](EngineOutput piece) {
      std::lock_guard lock(mutex_);
      ASSERT_FALSE(ended_) << "a piece after the last one";
      text_ += piece.text;
      ids_.insert(ids_.end(), piece.ids.begin(), piece.ids.end());
      logprobs_.insert(logprobs_.end(), piece.logprobs.begin(), piece.logprobs.end());
      prompt_logprobs_.insert(prompt_logprobs_.end(), piece.prompt_logprobs.begin(),
                              piece.prompt_logprobs.end());
      ended_ = piece.finish != FinishReason::kNone || !piece.error.ok();
      last_ = std::move(piece);
      ++piece_count_;
      changed_.notify_all();
    };
  }
  // Returns false after two minutes: a test may run on the processor time that others leave.
  bool wait_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return ended_; });
  }
  bool wait_pieces(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return piece_count_ >= count; });
  }
  int piece_count() const { return locked(piece_count_); }
  bool ended() const { return locked(ended_); }
  std::string text() const { return locked(text_); }
  std::vector<TokenId> ids() const { return locked(ids_); }
  std::vector<TokenLogprob> logprobs() const { return locked(logprobs_); }
  std::vector<TokenLogprob> prompt_logprobs() const { return locked(prompt_logprobs_); }
  EngineOutput last() const { return locked(last_); }

 private:
  static constexpr std::chrono::seconds kPatience{120};
  template <typename T>
  T locked(const T& value) const {
    std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<TokenId> ids_;
  std::vector<TokenLogprob> logprobs_, prompt_logprobs_;
  EngineOutput last_;
  int piece_count_ = 0;
  bool ended_ = false;
};

struct EngineHarness {
  static constexpr TokenId kEos = 2;  // <|im_end|> of the demo model's tokenizer, special there

  struct Model {
    bool runs_ahead = false;
    bool emits_eos = false;
    bool emits_all = false;  // every token that is text
    FakeRunner::Hook before_step = {};
    std::atomic<BlockId>* bad_block = nullptr;
  };
  explicit EngineHarness(SchedulerConfig config) : EngineHarness(config, Model{}) {}
  explicit EngineHarness(Model wanted) : EngineHarness(default_config(), std::move(wanted)) {}
  EngineHarness(SchedulerConfig config, Model wanted)
      : model(alphabet(*tokenizer, wanted.emits_eos, wanted.emits_all), tokenizer->vocab_size()) {
    Engine::Options options;
    options.scheduler = config;
    options.model_name = "fake";
    options.eos_token_ids = {kEos};
    options.idle_check = std::chrono::milliseconds(5);
    const FakeRunner::Options fake{config.block_size, config.block_count, wanted.runs_ahead,
                                   std::move(wanted.before_step), wanted.bad_block};
    engine = std::make_unique<Engine>(std::make_unique<FakeRunner>(&model, fake), tokenizer.get(), options,
                                      metrics, log);
    engine->start();
  }

  static SchedulerConfig default_config() {
    SchedulerConfig config;
    config.block_size = 4;
    config.block_count = 256;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 64;
    config.max_model_len = 400;
    config.output_reserve = OutputReserve::kNone;  // so that few blocks run out
    return config;
  }

  static std::unique_ptr<Tokenizer> load_tokenizer() {
    auto loaded = Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  // Forty tokens of plain text, including parts of Chinese characters if the vocabulary has such.
  static std::vector<TokenId> alphabet(const Tokenizer& tokenizer, bool with_eos, bool all = false) {
    std::vector<TokenId> ids;
    for (TokenId id = all ? 0 : 40; (all || ids.size() < 40) && id < tokenizer.vocab_size();
         id += all ? 1 : 3) {
      if (!tokenizer.is_special(id) && id != FakeKv::kNanToken) ids.push_back(id);
    }
    if (with_eos) ids.push_back(kEos);
    return ids;
  }

  static EngineRequest request(std::vector<TokenId> prompt, int32_t max_new_count, uint64_t seed = 0) {
    EngineRequest r;
    r.prompt = std::move(prompt);
    r.max_new_count = max_new_count;
    r.sampling.seed = seed;
    r.sampling.temperature = seed == 0 ? 0.0f : 1.0f;
    return r;
  }

  static std::vector<TokenId> prompt(TokenId first, int count) {
    std::vector<TokenId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(300 + (first + i * 7) % 2000);
    return ids;
  }

  // As an answer has it: without a character that its end cuts off.
  std::string decode(const std::vector<TokenId>& ids) const {
    const auto tokens = tokenizer->stream(/*skip_special=*/true);
    std::string text;
    for (const TokenId id : ids) text += tokens->push(id);
    return text + tokens->finish(/*keeps_cut_character=*/false);
  }

  bool wait_idle() const {
    for (int i = 0; i < 20'000; ++i) {
      if (engine->idle()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Declared before the engine: they outlive it.
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer();
  Metrics metrics;
  Logger log{LogLevel::kError, -1};
  FakeModel model;
  std::unique_ptr<Engine> engine;
};

// Runs a test with a runner whose steps are awaited, and with one that runs ahead.
class WaitsOrRunsAhead : public ::testing::TestWithParam<bool> {
 public:
  static std::string name(const ::testing::TestParamInfo<bool>& param) {
    return param.param ? "runs_ahead" : "waits";
  }

 protected:
  static EngineHarness::Model model(FakeRunner::Hook before_step = {}) {
    return {.runs_ahead = GetParam(), .before_step = std::move(before_step)};
  }
};

}  // namespace troupe::testing
