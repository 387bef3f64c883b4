#pragma once

// Random operations against a naive model. The model keeps, per request, its salt, ids and answer as plain
// vectors; the KV is a FakeKv. At every step each item must continue where its request stands, every position
// of its context must hold, in the block the table names, exactly the KV of that request's own ids, and what
// is sampled is a function of the context as read back from the KV: a mix-up of prefixes, an eviction of a
// block in use, a double free or a lost token shows as a wrong context or a wrong answer. Seeds are printed.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/worker/schedule/fake_kv.h"
#include "worker/schedule/scheduler.h"

namespace troupe {
namespace scheduler_model {

inline constexpr TokenId kStopToken = 0;

inline TokenId next_token(Hash128 context) {
  return static_cast<TokenId>(context.lo % 24);  // few tokens: answers of equal prompts share blocks
}

struct ModelRequest {
  Hash128 salt;
  std::vector<TokenId> ids;
  int32_t prompt_count = 0;
  int32_t max_new_count = 0;
  int32_t computed_count = -1;  // -1: not running as far as the model knows
  bool admitted = false;
  bool finished = false;
  bool decoding = false;
  bool cut_to_fit = false;  // max_new_count is the most
  int32_t pin_blocks = 0;   // that it may pin
  bool provisional = false;
  int32_t settled_count = 0;   // of a provisional request's answer
  int32_t run_count = 0;       // of the last of `ids`, while they are not computed
  bool rewound = false;        // while a step was under way that computes for it in vain
  int32_t unresolved = -1;     // the scheduler does not know the last of `ids`, but its place in the step
  bool has_companion = false;  // which is another of these, by the id with kCompanionBit

  Hash128 context(int32_t count) const {
    Hash128 hash = salt;
    for (int32_t i = 0; i < count; ++i) hash = testing::FakeKv::extend(hash, ids[static_cast<size_t>(i)]);
    return hash;
  }
};

class Machine {
 public:
  // `companions`: some requests have one.
  Machine(uint64_t seed, Batching batching, bool companions = false)
      : random_(seed),
        companions_(companions),
        config_(random_config(batching)),
        ahead_(pick(0, 1) == 1),
        scheduler_(config_),
        kv_(config_.block_size, config_.block_count) {
    for (auto& prefix : prefixes_) prefix = random_ids(pick(1, 60));
  }

  void run(int operation_count) {
    for (int i = 0; i < operation_count && !::testing::Test::HasFailure(); ++i) {
      const int choice = pick(0, 99);
      if (choice < 25) {
        add();
      } else if (choice < 30) {
        remove();
      } else if (choice < 32) {
        scheduler_.unpin(random_pin());
      } else {
        step(choice < 35);
      }
      const Status status = scheduler_.verify();
      ASSERT_TRUE(status.ok()) << status;
    }
    drain();
  }

  const SchedulerStats& stats() const { return scheduler_.stats(); }
  int64_t partial_hits() const { return partial_hits_; }
  int64_t pins() const { return pins_; }
  int64_t refused_beside_pins() const { return refused_beside_pins_; }
  int64_t cut_short() const { return cut_short_; }
  int64_t computed_in_vain() const { return computed_in_vain_; }
  int64_t prompts_before_decodes() const { return prompts_before_decodes_; }
  int64_t batches() const { return batches_; }
  int64_t corrupt() const { return corrupt_; }
  int64_t pairs() const { return pairs_; }
  int64_t pairs_preempted() const { return pairs_preempted_; }
  int64_t runs() const { return runs_; }
  int64_t runs_computed_in_parts() const { return runs_computed_in_parts_; }
  int64_t runs_preempted() const { return runs_preempted_; }
  int64_t rewinds() const { return rewinds_; }
  int64_t rewinds_to_prompt() const { return rewinds_to_prompt_; }

 private:
  struct Sampled {
    RequestId id;
    TokenId token;
    bool ends = false;                           // for sure
    bool may_end = false;                        // or it was told to say less
    bool corrupt = false;                        // it failed: no token was drawn
    bool vain = false;                           // of a request whose tokens were taken back meanwhile
    bool of_companion = false;                   // draws nothing
    int32_t settled_count = 0, kept_count = -1;  // StepToken's
    std::vector<TokenId> run{};                  // likewise
  };

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  SchedulerConfig random_config(Batching batching) {
    const int32_t block_sizes[] = {1, 2, 4, 16};
    SchedulerConfig config;
    config.batching = batching;
    config.block_size = block_sizes[pick(0, 3)];
    config.block_count = pick(2, 40);
    config.max_num_seqs = pick(1, 12);
    config.max_num_batched_tokens = pick(1, 80);
    config.max_waiting = pick(1, 30);
    config.max_model_len = pick(8, 200);
    config.max_passes = pick(0, 4);
    config.enable_prefix_caching = pick(0, 9) > 0;
    config.output_reserve = static_cast<OutputReserve>(pick(0, 2));
    config.tpot_budget = std::chrono::milliseconds(pick(0, 2) * 20);
    config.max_sets = pick(0, 3);
    return config;
  }

  std::vector<TokenId> random_ids(int count) {
    std::vector<TokenId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(pick(0, 23));
    return ids;
  }

  void add() {
    ModelRequest request;
    request.salt = {1, static_cast<uint64_t>(pick(0, 5) == 0)};
    request.ids = prefixes_[static_cast<size_t>(pick(0, 3))];
    // A shared prefix, sometimes cut short, an earlier conversation continued, and something of its own.
    if (pick(0, 3) == 0)
      request.ids.resize(static_cast<size_t>(pick(1, static_cast<int>(request.ids.size()))));
    if (!requests_.empty() && pick(0, 3) == 0) {
      const auto earlier = std::next(requests_.begin(), pick(0, static_cast<int>(requests_.size()) - 1));
      request.ids = earlier->second.ids;
      request.salt = earlier->second.salt;
    }
    for (TokenId id : random_ids(pick(0, 20))) request.ids.push_back(id);
    request.prompt_count = static_cast<int32_t>(request.ids.size());
    request.max_new_count = pick(1, 20);

    NewRequest added;
    added.id = next_id_++;
    added.prompt = request.ids;
    added.max_new_count = request.max_new_count;
    added.spec.salt = request.salt;
    keep_some(added, request);
    added.spec.set = {9, static_cast<uint64_t>(pick(0, 2))};
    added.spec.prefix_count = pick(0, request.prompt_count);
    added.spec.planned = pick(0, 1) == 0;
    std::optional<ModelRequest> companion;
    if (companions_ && !added.spec.background && pick(0, 1) == 0) {
      companion = make_companion(request);
      added.companion = companion->ids;
      request.has_companion = true;
    }
    const int32_t companion_count = companion ? companion->prompt_count : 0;
    const int32_t longest = std::max(request.prompt_count, companion_count);
    const int32_t new_count = std::min(request.max_new_count, config_.max_model_len - longest);
    const auto blocks_for = [&](int32_t prompt) {
      return (prompt + new_count - 1 + config_.block_size - 1) / config_.block_size;
    };
    const int32_t needed_blocks =
        blocks_for(request.prompt_count) + (companion ? blocks_for(companion_count) : 0);
    const int32_t rows = std::min(config_.max_num_seqs, config_.max_num_batched_tokens);
    const bool possible = new_count >= 1 && needed_blocks <= config_.block_count && (!companion || rows >= 2);
    const bool room = scheduler_.stats().waiting + companion.has_value() < config_.max_waiting;
    const bool roomy = needed_blocks <= config_.block_count - kept_blocks() && added.spec.pin.is_zero();
    const Status status = scheduler_.add(std::move(added));
    if (roomy || !possible || !room) {
      ASSERT_EQ(status.ok(), possible && room) << status;
    }
    refused_beside_pins_ += possible && room && !status.ok();
    if (!status.ok()) return;
    request.max_new_count = new_count;
    requests_.emplace(next_id_ - 1, std::move(request));
    if (companion) requests_.emplace((next_id_ - 1) | kCompanionBit, *std::move(companion));
    ++live_count_;
  }

  // Its prompt begins as its request's does, or is another's, or one token.
  ModelRequest make_companion(const ModelRequest& request) {
    ModelRequest companion;
    companion.salt = request.salt;
    companion.provisional = request.provisional;
    if (pick(0, 2) == 0) {
      companion.ids = random_ids(1);
    } else {
      companion.ids = pick(0, 1) == 0 ? request.ids : prefixes_[static_cast<size_t>(pick(0, 3))];
      companion.ids.resize(static_cast<size_t>(pick(1, static_cast<int>(companion.ids.size()))));
      for (TokenId id : random_ids(pick(0, 9))) companion.ids.push_back(id);
    }
    companion.prompt_count = static_cast<int32_t>(companion.ids.size());
    return companion;
  }

  static RequestId key_of(const BatchItem& item) { return item.id | (item.is_companion ? kCompanionBit : 0); }

  // Changes a request, and its companion.
  template <typename F>
  void for_both(RequestId id, const F& change) {
    change(requests_.at(id));
    if (requests_.at(id).has_companion) change(requests_.at(id | kCompanionBit));
  }

  Hash128 random_pin() { return {7, static_cast<uint64_t>(pick(1, 3))}; }

  // Makes some requests background requests, and lets some of those pin their prompts.
  void keep_some(NewRequest& added, ModelRequest& request) {
    added.spec.cut_to_fit = request.cut_to_fit = pick(0, 2) == 0;
    if (config_.batching == Batching::kMerged) {
      added.spec.provisional = request.provisional = pick(0, 3) == 0;
    }
    added.spec.background = pick(0, 7) == 0;
    if (!added.spec.background || pick(0, 2) == 0) return;
    added.spec.pin = random_pin();
    added.max_new_count = request.max_new_count = 1;
    request.pin_blocks = (request.prompt_count + config_.block_size - 1) / config_.block_size;
  }

  int32_t kept_blocks() const {
    int32_t count = scheduler_.stats().blocks_pinned;
    for (const auto& [id, request] : requests_) count += request.finished ? 0 : request.pin_blocks;
    return count;
  }

  void remove() {
    if (requests_.empty()) return;
    const auto it = std::next(requests_.begin(), pick(0, static_cast<int>(requests_.size()) - 1));
    const RequestId id = it->first & ~kCompanionBit;
    scheduler_.remove(id);
    if (!it->second.finished) --live_count_;
    for_both(id, [](ModelRequest& r) { r.finished = true; });
  }

  // Ahead: the step before it is resolved when this one is under way.
  void step(bool fail) {
    for (auto& [id, request] : requests_) request.rewound = false;
    const int64_t preemptions_before = scheduler_.stats().preemptions_total;
    const int32_t running_before = scheduler_.stats().running;
    const Batch& batch = scheduler_.plan(now_);
    if (last_.empty()) {
      ASSERT_EQ(batch.empty(), live_count_ == 0) << "an empty step while requests are there";
    }
    // A background request that made way may be in the step again.
    for (const RequestId id : batch.preempted) {
      pairs_preempted_ += requests_.at(id).has_companion;
      for_both(id, [&](ModelRequest& r) {
        runs_preempted_ += r.decoding && r.run_count > 0;
        r.computed_count = -1;
        r.decoding = false;
        r.admitted = true;  // if only to a batch, of which no step was about it
      });
    }
    if (batch.empty()) return resolve();
    ASSERT_LE(static_cast<int32_t>(batch.items.size()), config_.max_num_seqs);
    ASSERT_LE(batch.token_count, config_.max_num_batched_tokens);
    const bool preempted = scheduler_.stats().preemptions_total > preemptions_before;
    check_batching(batch, running_before);
    check_pairs(batch);
    kv_.copy(batch.copies);
    int32_t token_count = 0;
    for (const BatchItem& item : batch.items) {
      check_item(item);
      token_count += static_cast<int32_t>(item.ids.size());
    }
    ASSERT_EQ(token_count, batch.token_count);
    // All contexts were right before any is written; now compute (even a failing step scribbles).
    std::vector<Sampled> sampled;
    for (const BatchItem& item : batch.items) compute(item, sampled);
    if (::testing::Test::HasFailure()) return;
    if (preempted) forget_positions(batch);
    if (ahead_) resolve();
    if (fail) {
      scheduler_.abandon();
      return;
    }
    for (const BatchItem& item : batch.items) {
      ModelRequest& r = requests_.at(key_of(item));
      if (!r.finished && !r.rewound) r.computed_count = item.start + static_cast<int32_t>(item.ids.size());
      runs_computed_in_parts_ += r.run_count > 0 && r.decoding && !item.samples;
      if (item.samples) r.run_count = 0;
    }
    if (ahead_) scheduler_.advance();
    take(std::move(sampled));
    if (!ahead_ || any_run()) resolve();
  }

  bool any_run() const {
    return std::any_of(last_.begin(), last_.end(), [](const Sampled& s) { return !s.run.empty(); });
  }

  // Checks which requests share the step.
  void check_batching(const Batch& batch, int32_t running_before) {
    if (config_.batching == Batching::kMerged) return;
    int decodes = 0, live_decodes = 0;
    for (const BatchItem& item : batch.items) {
      // A pair's last ids come with the decodes.
      const ModelRequest& r = requests_.at(key_of(item));
      decodes += r.decoding || (item.samples && (r.has_companion || item.is_companion));
    }
    ASSERT_TRUE(decodes == 0 || decodes == static_cast<int>(batch.items.size())) << "prompts beside decodes";
    for (const auto& [id, request] : requests_) live_decodes += request.decoding && !request.finished;
    // When steps are planned ahead, some requests may have ended without the model knowing it yet.
    if (decodes > 0 && !ahead_ && !companions_) {
      ASSERT_EQ(decodes, live_decodes) << "a decode without its token";
    }
    prompts_before_decodes_ += decodes == 0 && live_decodes > 0;
    if (config_.batching != Batching::kStatic) return;
    int32_t stayed = running_before;
    for (const RequestId id : batch.preempted) stayed -= requests_.at(id).has_companion ? 2 : 1;
    const int32_t joined = scheduler_.stats().running - stayed;
    ASSERT_TRUE(joined == 0 || stayed == 0) << "somebody joined a batch";
    batches_ += joined > 1;
  }

  // The logits of both partners come from one step, side by side.
  void check_pairs(const Batch& batch) {
    for (size_t i = 0; i < batch.items.size(); ++i) {
      const BatchItem& item = batch.items[i];
      if (!item.samples || !requests_.at(item.id).has_companion) continue;
      const size_t other = item.is_companion ? i - 1 : i + 1;
      ASSERT_LT(other, batch.items.size()) << "one of a pair alone";
      const BatchItem& partner = batch.items[other];
      ASSERT_TRUE(partner.id == item.id && partner.samples && partner.is_companion != item.is_companion);
      pairs_ += item.is_companion;
    }
  }

  void check_item(const BatchItem& item) {
    ASSERT_TRUE(requests_.contains(key_of(item)));
    ModelRequest& r = requests_.at(key_of(item));
    ASSERT_FALSE(r.finished);
    ASSERT_FALSE(item.ids.empty());
    const int32_t end = item.start + static_cast<int32_t>(item.ids.size());
    const int32_t known_count = static_cast<int32_t>(r.ids.size());
    ASSERT_LE(end, known_count);
    ASSERT_EQ(item.samples, end == known_count);
    ASSERT_EQ(item.sample_position, known_count - r.prompt_count);
    ASSERT_GE(static_cast<int32_t>(item.blocks.size()) * config_.block_size, end);
    if (item.start != r.computed_count) {  // admitted now, or again after a preemption
      ASSERT_TRUE(r.computed_count < 0) << "a running request jumped";
    }
    partial_hits_ += item.start % config_.block_size != 0 && item.start != r.computed_count;
    if (!r.admitted && !item.is_companion) {
      ASSERT_EQ(scheduler_.cached_count(item.id), item.start);
    }
    r.admitted = true;
    Hash128 context = r.salt;
    for (int32_t p = 0; p < item.start; ++p) {
      context = testing::FakeKv::extend(context, r.ids[static_cast<size_t>(p)]);
      ASSERT_EQ(kv_.read(item.blocks, p).hex(), context.hex())
          << "request " << item.id << " would read another context at position " << p;
    }
    for (size_t i = 0; i < item.ids.size(); ++i) {
      const bool unknown = r.unresolved >= 0 && item.start + static_cast<int32_t>(i) + 1 == known_count;
      ASSERT_EQ(item.ids[i], unknown ? -1 - r.unresolved : r.ids[static_cast<size_t>(item.start) + i]);
    }
  }

  void compute(BatchItem item, std::vector<Sampled>& sampled) {
    const ModelRequest& r = requests_.at(key_of(item));
    item.ids = std::span(r.ids).subspan(static_cast<size_t>(item.start), item.ids.size());
    const Hash128 context = kv_.compute(item, r.salt);
    if (!item.samples) return;
    const TokenId token = next_token(context);
    ASSERT_EQ(token, next_token(r.context(static_cast<int32_t>(r.ids.size()))));
    sampled.push_back({item.id, token});
    if (!item.is_companion) return;
    // The token hangs on both contexts.
    Sampled& drawn = sampled[sampled.size() - 2];
    drawn.token = (drawn.token + token) % 24;
    sampled.back().of_companion = true;
  }

  // A request that is not in a step with a preemption may be the victim: its position is unknown until it is
  // planned again.
  void forget_positions(const Batch& batch) {
    for (auto& [id, request] : requests_) {
      bool planned = false;
      for (const BatchItem& item : batch.items) planned = planned || key_of(item) == id;
      if (!planned) request.computed_count = -1;
    }
  }

  // The step's tokens are in the requests from now on, if not known to the scheduler yet.
  void take(std::vector<Sampled> sampled) {
    last_ = std::move(sampled);
    has_last_ = true;
    for (size_t i = 0; i < last_.size(); ++i) {
      if (last_[i].of_companion) continue;
      ModelRequest& r = requests_.at(last_[i].id);
      computed_in_vain_ += r.finished || r.rewound;
      last_[i].vain = r.rewound;
      if (r.finished || r.rewound) continue;
      for_both(last_[i].id, [&](ModelRequest& each) {
        each.ids.push_back(last_[i].token);
        each.decoding = true;
        if (ahead_) each.unresolved = static_cast<int32_t>(i);
      });
      corrupt_ += last_[i].corrupt = pick(0, 49) == 0;
      if (!last_[i].corrupt) add_run(last_[i].id, last_[i].run);
      const int32_t emitted_count = static_cast<int32_t>(r.ids.size()) - r.prompt_count;
      last_[i].ends = last_[i].corrupt || last_[i].token == kStopToken || emitted_count >= r.max_new_count;
      last_[i].may_end = last_[i].ends || r.cut_to_fit;
    }
  }

  // Some draws bring further tokens. The step behind must not be planned before they are known.
  void add_run(RequestId id, std::vector<TokenId>& run) {
    ModelRequest& r = requests_.at(id);
    if (r.provisional || r.has_companion || pick(0, 5) > 0) return;
    const int32_t left = scheduler_.tokens_left(id) - (ahead_ ? 0 : 1);  // the draw is not known to it yet
    ASSERT_LE(left, r.max_new_count - (static_cast<int32_t>(r.ids.size()) - r.prompt_count));
    run = random_ids(std::min(pick(1, 40), left));
    r.ids.insert(r.ids.end(), run.begin(), run.end());
    r.run_count = static_cast<int32_t>(run.size());
    runs_ += !run.empty();
  }

  void resolve() {
    if (!has_last_) return;
    has_last_ = false;
    std::vector<StepToken> tokens;
    for (Sampled& s : last_) {
      settle(s);
      tokens.push_back({s.id, s.token, s.corrupt || s.token == kStopToken, s.corrupt, s.settled_count,
                        s.kept_count, s.run});
    }
    now_ += std::chrono::microseconds(pick(1, 30'000) * (pick(0, 20) == 0 ? 100 : 1));
    std::vector<RequestId> finished;
    if (ahead_) {
      scheduler_.resolve(tokens, now_, finished);
    } else {
      scheduler_.commit(tokens, now_, finished);
    }
    size_t next = 0;
    for (const Sampled& s : last_) {
      if (s.of_companion) continue;
      ModelRequest& r = requests_.at(s.id);
      for_both(s.id, [](ModelRequest& each) { each.unresolved = -1; });
      const bool ended = next < finished.size() && finished[next] == s.id;
      next += ended;
      if (r.finished || s.vain) continue;  // removed meanwhile
      if (s.kept_count >= 0) rewind(s.id, s.kept_count);
      ASSERT_LE(s.ends, ended);
      ASSERT_LE(ended, s.may_end);
      if (!ended) continue;
      cut_short_ += !s.ends;
      pins_ += r.pin_blocks > 0 && !s.corrupt;
      for_both(s.id, [](ModelRequest& each) { each.finished = true; });
      --live_count_;
    }
    ASSERT_EQ(next, finished.size());
    last_.clear();
  }

  // Some tokens of a provisional request stay for good from now on, and others are taken back.
  void settle(Sampled& s) {
    ModelRequest& r = requests_.at(s.id);
    if (!r.provisional || r.finished || s.vain || s.corrupt || s.of_companion) return;
    const int32_t emitted_count = static_cast<int32_t>(r.ids.size()) - r.prompt_count;
    if (pick(0, 1) == 0) r.settled_count = pick(r.settled_count, emitted_count);
    s.settled_count = r.settled_count;
    if (r.settled_count == emitted_count || pick(0, 3) > 0) return;
    s.kept_count = pick(r.settled_count, emitted_count - 1);
    s.ends = s.may_end = false;
  }

  void rewind(RequestId id, int32_t kept_count) {
    ++rewinds_;
    rewinds_to_prompt_ += kept_count == 0 && requests_.at(id).prompt_count % config_.block_size == 0;
    for_both(id, [kept_count](ModelRequest& r) {
      r.ids.resize(static_cast<size_t>(r.prompt_count + kept_count));
      r.computed_count = -1;
      r.rewound = true;
    });
  }

  void drain() {
    // Every step computes at least one token; preemption recomputes, so the bound is generous, not tight.
    for (int limit = 20'000; live_count_ > 0 || has_last_; --limit) {
      ASSERT_GT(limit, 0) << "requests never finish";
      step(false);
      if (::testing::Test::HasFailure()) return;
    }
    const SchedulerStats& stats = scheduler_.stats();
    EXPECT_EQ(stats.blocks_used, stats.blocks_pinned);
    for (uint64_t name = 1; name <= 3; ++name) scheduler_.unpin({7, name});
    EXPECT_EQ(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
    EXPECT_EQ(stats.blocks_used + stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.pending_prefill_tokens, 0);
    EXPECT_TRUE(scheduler_.verify().ok()) << scheduler_.verify();
    EXPECT_TRUE(config_.enable_prefix_caching || stats.blocks_cached == 0);
  }

  std::mt19937_64 random_;
  const bool companions_;
  SchedulerConfig config_;
  const bool ahead_;  // steps are planned before the tokens of the one before are known
  Scheduler scheduler_;
  testing::FakeKv kv_;
  std::map<RequestId, ModelRequest> requests_;
  std::vector<TokenId> prefixes_[4];
  RequestId next_id_ = 1;
  int live_count_ = 0;
  std::vector<Sampled> last_;  // of the step whose tokens the scheduler does not know yet
  bool has_last_ = false;
  int64_t partial_hits_ = 0, pins_ = 0, refused_beside_pins_ = 0, cut_short_ = 0, computed_in_vain_ = 0;
  int64_t pairs_ = 0;  // steps that drew for one
  int64_t pairs_preempted_ = 0;
  int64_t runs_ = 0, runs_computed_in_parts_ = 0, runs_preempted_ = 0;
  int64_t corrupt_ = 0, rewinds_ = 0, rewinds_to_prompt_ = 0;
  int64_t prompts_before_decodes_ = 0, batches_ = 0;  // of more than one request
  TimePoint now_{};
};

}  // namespace scheduler_model
}  // namespace troupe
