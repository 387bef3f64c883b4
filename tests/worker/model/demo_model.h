#pragma once

// The demo model with Transformers' results for it (tests/fixtures/demo_golden.py), and a driver that feeds a
// runner by hand: the test chooses which chunk of which prompt goes into which step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "worker/model/runner.h"

namespace troupe {

inline const char* const kDemoModelDir = TROUPE_SOURCE_DIR "/configs/demo-model";

struct GoldenCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;   // greedy
  std::vector<double> gaps;      // best logit - second best, a step
  std::vector<double> logprobs;  // of output, a step

  std::vector<TokenId> all_ids() const {
    std::vector<TokenId> ids = prompt;
    ids.insert(ids.end(), output.begin(), output.end());
    return ids;
  }
};

inline std::vector<GoldenCase> read_golden_cases() {
  std::vector<GoldenCase> cases;
  const auto json = read_json_file(TROUPE_SOURCE_DIR "/tests/fixtures/demo_golden.json");
  EXPECT_TRUE(json.ok()) << json.status();
  if (!json.ok()) return cases;
  for (const bj::value& item : json->as_array()) {
    GoldenCase one;
    for (const bj::value& id : item.at("prompt_ids").as_array())
      one.prompt.push_back(id.to_number<TokenId>());
    for (const bj::value& id : item.at("output_ids").as_array())
      one.output.push_back(id.to_number<TokenId>());
    for (const bj::value& gap : item.at("gaps").as_array()) one.gaps.push_back(gap.to_number<double>());
    for (const bj::value& lp : item.at("logprobs").as_array()) one.logprobs.push_back(lp.to_number<double>());
    cases.push_back(std::move(one));
  }
  EXPECT_EQ(cases.size(), 60u);
  // Shortest first: a slow backend takes the head of the list.
  std::sort(cases.begin(), cases.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.prompt.size() < b.prompt.size(); });
  return cases;
}

// Read once; never changed.
inline const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = read_golden_cases();
  return cases;
}

inline RunnerOptions demo_options(const std::string& backend, int64_t kv_cache_tokens = 4096) {
  RunnerOptions options;
  options.model_dir = kDemoModelDir;
  options.backend = backend;
  options.kv_cache_tokens = kv_cache_tokens;
  return options;
}

using Logits = std::vector<float>;

// A request in the scheduler's terms: its ids, its blocks, and how far its KV is computed.
struct Lane {
  std::vector<TokenId> ids;
  std::vector<BlockId> blocks;
  int32_t computed = 0;
};

// A lane's blocks are [first_block, …), which no other lane uses.
inline Lane make_lane(std::vector<TokenId> ids, BlockId first_block, int32_t block_size = 16) {
  Lane lane;
  lane.blocks.resize((ids.size() + static_cast<size_t>(block_size) - 1) / static_cast<size_t>(block_size));
  for (size_t i = 0; i < lane.blocks.size(); ++i) lane.blocks[i] = first_block + static_cast<BlockId>(i);
  lane.ids = std::move(ids);
  return lane;
}

// Takes the next `count` ids of a lane as an item of a batch.
inline BatchItem take(Lane& lane, int32_t count, bool samples) {
  BatchItem item;
  item.ids = std::span(lane.ids).subspan(static_cast<size_t>(lane.computed), static_cast<size_t>(count));
  item.start = lane.computed;
  item.samples = samples;
  item.blocks = lane.blocks;
  lane.computed += count;
  return item;
}

// Runs the batch and copies the logits of the items that sample, in order. Checks that the backend drew from
// them what the host draws.
inline std::vector<Logits> run_step(ModelRunner& runner, const Batch& batch) {
  std::vector<SampleRow> draws;
  std::vector<int32_t> shown;
  for (const BatchItem& item : batch.items) {
    if (!item.samples) continue;
    shown.push_back(static_cast<int32_t>(draws.size()));
    draws.push_back({.draw = {.top_p = 0.95f, .seed = 3, .position = draws.size()}});
  }
  const auto output = runner.run(batch, {draws, shown});
  EXPECT_TRUE(output.ok()) << output.status();
  std::vector<Logits> rows;
  if (!output.ok() || draws.empty()) return rows;
  const int64_t vocab = output->logits.shape[1];
  for (size_t s = 0; s < draws.size(); ++s) {
    const float* const begin = output->logits.as<float>() + static_cast<int64_t>(s) * vocab;
    rows.emplace_back(begin, begin + vocab);
    EXPECT_EQ(output->tokens[s], draw_token(rows.back(), draws[s].draw)) << "row " << s;
  }
  return rows;
}

inline std::vector<Logits> run_step(ModelRunner& runner, std::vector<BatchItem> items) {
  Batch batch;
  batch.items = std::move(items);
  for (const BatchItem& item : batch.items) batch.token_count += static_cast<int32_t>(item.ids.size());
  return run_step(runner, batch);
}

// Feeds a lane alone up to `end` in chunks; returns the logits after its last id.
inline Logits feed(ModelRunner& runner, Lane& lane, int32_t end, int32_t chunk) {
  std::vector<Logits> rows;
  while (lane.computed < end) {
    const int32_t count = std::min(chunk, end - lane.computed);
    rows = run_step(runner, {take(lane, count, lane.computed + count == end)});
  }
  return rows.empty() ? Logits() : rows.front();
}

// Returns the logits before each golden token: feeds the prompt in chunks, then one golden token
// after the other.
inline std::vector<Logits> answer(ModelRunner& runner, Lane& lane, const GoldenCase& golden, int32_t chunk) {
  std::vector<Logits> steps;
  const auto prompt_count = static_cast<int32_t>(golden.prompt.size());
  steps.push_back(feed(runner, lane, prompt_count, chunk));
  for (size_t i = 1; i < golden.output.size(); ++i) {
    steps.push_back(feed(runner, lane, prompt_count + static_cast<int32_t>(i), chunk));
  }
  return steps;
}

}  // namespace troupe
