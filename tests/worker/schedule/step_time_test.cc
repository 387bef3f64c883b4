#include "worker/schedule/step_time.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "worker/schedule/node_profile.h"

namespace troupe::step_time_test {

using std::chrono::microseconds;

NodeProfile profile(const std::string& name) {
  auto loaded = load_node_profile(TROUPE_SOURCE_DIR "/configs/sim/" + name + ".yaml");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : NodeProfile();
}

double ms(const StepCosts& costs, const StepLoad& load) {
  return std::chrono::duration<double, std::milli>(step_duration(costs, load)).count();
}

StepLoad decodes(int count, int64_t context) {
  StepLoad load;
  for (int i = 0; i < count; ++i) load.add_decode(context);
  return load;
}

StepLoad prefill(int64_t start, int64_t count) {
  StepLoad load;
  load.add_prefill(start, count);
  return load;
}

std::string study_text() {
  std::ifstream file(TROUPE_SOURCE_DIR "/configs/sim/study.yaml");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// study.yaml with one line of another value, or without it.
std::string changed(const std::string& key, const std::string& value) {
  std::string out;
  std::stringstream lines(study_text());
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(key + ":");
    const bool is_it = at != std::string::npos && line.find('#') == std::string::npos;
    if (!is_it) out += line + "\n";
    if (is_it && !value.empty()) out += line.substr(0, at) + key + ": " + value + "\n";
  }
  return out;
}

// The formula as the study states it.
double study_ms(double decode_kv_tokens, double prefill_tokens, double prefill_rate) {
  return std::max(4.2 + 3e-5 * decode_kv_tokens, prefill_tokens / prefill_rate * 1000) + 0.3;
}

TEST(StepTime, StudyProfilesFollowTheStudysFormula) {
  const StepCosts study = profile("study").costs, tight = profile("study-13b").costs;
  for (const int count : {0, 1, 64, 256}) {
    for (const int64_t context : {1, 2000, 100'000}) {
      for (const int64_t chunk : {0, 1, 127, 2048}) {
        StepLoad load = decodes(count, context);
        load.add_prefill(500, chunk);
        const double kv = static_cast<double>(count * context), tokens = static_cast<double>(chunk);
        EXPECT_NEAR(ms(study, load), study_ms(kv, tokens, 30'000), 1e-4)
            << count << " " << context << " " << chunk;
        EXPECT_NEAR(ms(tight, load), study_ms(kv, tokens, 17'000), 1e-4)
            << count << " " << context << " " << chunk;
      }
    }
  }
}

TEST(StepTime, StudyProfilesHaveTheStudysCapacity) {
  EXPECT_EQ(profile("study").kv_cache_tokens, 800'000);
  EXPECT_EQ(profile("study-13b").kv_cache_tokens, 120'000);
  const SchedulerConfig config = scheduler_config(profile("study"));
  EXPECT_EQ(config.block_count, 50'000);
  EXPECT_EQ(config.block_size, 16);
  EXPECT_EQ(config.max_num_seqs, 256);
  EXPECT_EQ(config.max_num_batched_tokens, 2048);
}

TEST(StepTime, DerivedProfilesAreNearTheirRooflines) {
  const StepCosts llama3 = profile("h200-llama-3.1-8b").costs;
  EXPECT_NEAR(ms(llama3, decodes(1, 1)), 15.01 / (4.3 * 0.85) + 0.3, 0.01);
  // 128 KiB a token: as many bytes as weights after some 114,000 tokens.
  EXPECT_NEAR(ms(llama3, decodes(114, 1004)), 2 * 15.01 / (4.3 * 0.85) + 0.3, 0.05);
  EXPECT_NEAR(ms(llama3, prefill(0, 2048)), 37.6 / 0.60 + 0.3, 0.5);
  const StepCosts llama2 = profile("h200-llama-2-13b").costs;
  EXPECT_NEAR(ms(llama2, decodes(1, 1)), 25.70 / (4.3 * 0.85) + 0.3, 0.01);
  EXPECT_NEAR(ms(llama2, prefill(0, 2048)), 68.0 / 0.60 + 0.3, 0.8);
}

TEST(StepTime, DurationRisesWithEveryPartOfTheLoad) {
  for (const char* name : {"study", "study-13b", "h200-llama-3.1-8b", "h200-llama-2-13b", "h100-llama-3.1-8b",
                           "a100-80-qwen2.5-14b", "l40s-qwen2.5-7b", "4x-h100-llama-3.1-70b", "cpu-demo"}) {
    const StepCosts costs = profile(name).costs;
    StepLoad load;
    Duration last = step_duration(costs, load);
    EXPECT_GT(last.count(), 0) << name;
    for (int i = 0; i < 200; ++i) {
      if (i % 3 == 0) load.add_prefill(i * 10, 1 + i);
      if (i % 3 != 0) load.add_decode(1 + i * 37);
      const Duration now = step_duration(costs, load);
      EXPECT_GE(now, last) << name << " " << i;
      last = now;
    }
  }
}

TEST(StepTime, DurationIsCappedAtOneDay) {
  const auto dear = parse_node_profile(changed("prefill_pair_ns", "1e9"), "x.yaml");
  ASSERT_TRUE(dear.ok()) << dear.status();
  const Duration takes = step_duration(dear->costs, prefill(16'000'000, 1 << 20));
  EXPECT_EQ(takes, std::chrono::hours(24));
  EXPECT_GT(takes, step_duration(dear->costs, prefill(0, 100)));
}

TEST(StepTime, ChunksOfPromptSumToItsAttentionPairs) {
  StepLoad chunks;
  chunks.add_prefill(0, 100);
  chunks.add_prefill(100, 28);
  EXPECT_EQ(chunks.prefill_pairs, prefill(0, 128).prefill_pairs);
  EXPECT_EQ(prefill(0, 3).prefill_pairs, 1 + 2 + 3);
  EXPECT_EQ(prefill(5, 2).prefill_pairs, 6 + 7);
}

TEST(StepTime, ChunkReadsItsContextOnce) {
  StepCosts costs;
  costs.weights_us = 1000;
  costs.prefill_context_ns = 500;
  costs.prefill_token_us = 10;
  EXPECT_NEAR(ms(costs, prefill(1600, 10)), 1.0 + 0.8, 1e-6) << "reading, while 0.1 ms of products go on";
  EXPECT_NEAR(ms(costs, prefill(0, 1000)), 10.0, 1e-6);
  costs.overlaps = false;
  EXPECT_NEAR(ms(costs, prefill(1600, 10)), 1.0 + 0.8 + 0.1, 1e-6);
  StepLoad two = prefill(1600, 10);
  two.add_prefill(400, 10);
  EXPECT_NEAR(ms(costs, two), 1.0 + 1.0 + 0.2, 1e-6) << "chunks of two prompts";
}

TEST(StepTime, BatchLoadDistinguishesDecodesFromOneTokenChunks) {
  const std::vector<TokenId> ids(64, 7);
  const std::span<const TokenId> all(ids);
  Batch batch;
  BatchItem decode;
  decode.ids = all.first(1), decode.count = 1;
  decode.start = 999, decode.samples = true, decode.sample_position = 5;
  BatchItem first_token_of_a_hit = decode;
  first_token_of_a_hit.sample_position = 0;
  BatchItem recomputed = decode;  // preempted: its whole text again
  recomputed.ids = all, recomputed.count = static_cast<int32_t>(all.size()), recomputed.start = 0;
  batch.items = {decode, first_token_of_a_hit, recomputed};
  const StepLoad load = step_load(batch);
  EXPECT_EQ(load.decode_count, 1);
  EXPECT_EQ(load.decode_context_tokens, 1000);
  EXPECT_EQ(load.prefill_context_tokens, 999)
      << "of the first token of a hit; the recomputed one begins at 0";
  EXPECT_EQ(load.prefill_tokens, 65);
  EXPECT_EQ(load.prefill_pairs, 1000 + 64 * 65 / 2);
}

TEST(NodeProfile, ImpossibleValueIsRefusedByKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"kv_cache_tokens", "0"},
                                                                  {"kv_cache_tokens", "many"},
                                                                  {"block_size", "-16"},
                                                                  {"max_num_seqs", "4096"},
                                                                  {"max_num_batched_tokens", "0"},
                                                                  {"max_model_len", "900000"},
                                                                  {"overlap", "min"},
                                                                  {"overhead_us", "-1"},
                                                                  {"weights_us", "nan"},
                                                                  {"decode_context_ns", "1e300"},
                                                                  {"prefill_context_ns", "-0.5"},
                                                                  {"prefill_token_us", "0"},
                                                                  {"prefill_pair_ns", "[1, 2]"}};
  for (const auto& [key, value] : cases) {
    const auto parsed = parse_node_profile(changed(key, value), "x/broken.yaml");
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << key << ": " << value;
    const std::string message(parsed.status().message());
    EXPECT_EQ(message.rfind("x/broken.yaml", 0), 0u) << message;
    EXPECT_NE(message.find(key), std::string::npos) << message;
  }
}

TEST(NodeProfile, MissingKeyIsRefused) {
  for (const char* key : {"kv_cache_tokens", "block_size", "max_num_seqs", "max_num_batched_tokens",
                          "max_model_len", "overlap", "overhead_us", "weights_us", "decode_token_us",
                          "decode_context_ns", "prefill_token_us", "prefill_pair_ns"}) {
    const auto parsed = parse_node_profile(changed(key, ""), "x.yaml");
    ASSERT_FALSE(parsed.ok()) << key;
    EXPECT_NE(std::string(parsed.status().message()).find(std::string(key) + ": is missing"),
              std::string::npos)
        << parsed.status();
  }
  EXPECT_FALSE(parse_node_profile(study_text() + "colour: blue\n", "x.yaml").ok());
}

// Profiles from before there was this key.
TEST(NodeProfile, PrefillContextCostDefaultsToZero) {
  const auto parsed = parse_node_profile(changed("prefill_context_ns", ""), "x.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->costs.prefill_context_ns, 0);
  EXPECT_EQ(parse_node_profile(changed("prefill_context_ns", "7"), "x.yaml")->costs.prefill_context_ns, 7);
}

TEST(NodeProfile, IsFoundByNameFromAnyDirectory) {
  const auto found = load_node_profile("study");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->name, "study");
  const auto unknown = load_node_profile("abacus");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(unknown.status().message()).find("study, study-13b"), std::string::npos)
      << unknown.status();
  EXPECT_FALSE(load_node_profile("../sim/study").ok()) << "a path must end in .yaml";
}

}  // namespace troupe::step_time_test
