// The sizing table against figures found another way: published parameter counts, and the node profiles.

#include "sim/sizing/sizing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/sizing/sizing_profile.h"
#include "worker/schedule/node_profile.h"

namespace troupe::sim {
namespace sizing_test {

const Gpu& gpu(std::string_view name) {
  for (const Gpu& known : known_gpus())
    if (known.name == name) return known;
  ADD_FAILURE() << name;
  return known_gpus()[0];
}

TEST(Sizing, WeightsEqualThePublishedCounts) {
  const std::pair<const char*, double> published[] = {
      {"llama-3.1-8b", 8.03e9}, {"llama-3.1-70b", 70.6e9}, {"llama-2-7b", 6.74e9},  {"llama-2-13b", 13.02e9},
      {"qwen2.5-7b", 7.62e9},   {"qwen2.5-14b", 14.77e9},  {"qwen2.5-32b", 32.76e9}};
  for (const auto& [name, parameters] : published)
    EXPECT_NEAR(load_model_shape(name)->weight_bytes() / 2 / parameters, 1, 0.002) << name;
  EXPECT_EQ(load_model_shape("llama-3.1-8b")->kv_bytes_per_token(), 131'072);
  EXPECT_EQ(load_model_shape("llama-2-13b")->kv_bytes_per_token(), 819'200);
}

TEST(Sizing, AgreesWithTheNodeProfiles) {
  for (const char* name : {"llama-3.1-8b", "llama-2-13b"}) {
    const auto profile = load_node_profile(std::string("h200-") + name);
    ASSERT_TRUE(profile.ok()) << profile.status();
    const ModelShape model = *load_model_shape(name);
    const StepCosts& costs = profile->costs;
    Load load;
    load.prompt_tokens = 1000;
    load.hit = 0;
    load.output_tokens = 2;
    const Sizing s = size_node(model, gpu("H200"), 1, load);
    EXPECT_NEAR(s.kv_tokens / static_cast<double>(profile->kv_cache_tokens), 1, 0.02) << name;
    const double alone_us = costs.overhead_us + costs.weights_us + 1001 * costs.decode_context_ns / 1e3;
    EXPECT_NEAR(1e6 / s.stream_tokens_per_s / alone_us, 1, 0.02) << name;
    const double prefill_us = 1000 * costs.prefill_token_us + 500 * 1000 * costs.prefill_pair_ns / 1e3;
    EXPECT_NEAR(1e6 * 1000 / s.prefill_tokens_per_s / prefill_us, 1, 0.03) << name;
  }
}

// Every figure of a node, without its name.
std::vector<std::pair<const char*, double>> figures(const NodeProfile& p) {
  return {{"kv_cache_tokens", p.kv_cache_tokens},
          {"block_size", p.block_size},
          {"max_num_seqs", p.max_num_seqs},
          {"max_num_batched_tokens", p.max_num_batched_tokens},
          {"max_model_len", p.max_model_len},
          {"overlaps", p.costs.overlaps},
          {"overhead_us", p.costs.overhead_us},
          {"weights_us", p.costs.weights_us},
          {"decode_token_us", p.costs.decode_token_us},
          {"decode_context_ns", p.costs.decode_context_ns},
          {"prefill_context_ns", p.costs.prefill_context_ns},
          {"prefill_token_us", p.costs.prefill_token_us},
          {"prefill_pair_ns", p.costs.prefill_pair_ns}};
}

void expect_alike(const NodeProfile& a, const NodeProfile& b, double share) {
  const auto of_a = figures(a), of_b = figures(b);
  for (size_t i = 0; i < of_a.size(); ++i)
    EXPECT_NEAR(of_a[i].second / of_b[i].second, 1, share) << of_a[i].first;
}

TEST(Sizing, ReproducesTheCommittedProfiles) {
  for (const char* name : {"llama-3.1-8b", "llama-2-13b"}) {
    SCOPED_TRACE(name);
    const auto committed = load_node_profile(std::string("h200-") + name);
    ASSERT_TRUE(committed.ok()) << committed.status();
    const auto written = parse_node_profile(profile_yaml(*load_model_shape(name), gpu("H200"), 1), "w.yaml");
    ASSERT_TRUE(written.ok()) << written.status();
    expect_alike(*written, *committed, 0.02);
  }
}

TEST(Sizing, WrittenProfilesReadBack) {
  int count = 0;
  for (const std::string& name : model_shape_names()) {
    const ModelShape model = *load_model_shape(name);
    for (const Gpu& each : known_gpus()) {
      for (const int gpus : {1, 2, 4, 8}) {
        const Sizing s = size_node(model, each, gpus, {});
        if (!s.fits) continue;
        SCOPED_TRACE(absl::StrCat(gpus, " x ", std::string(each.name), " ", name));
        const std::string yaml = profile_yaml(model, each, gpus);
        const auto read = parse_node_profile(yaml, "w.yaml");
        ASSERT_TRUE(read.ok()) << read.status() << "\n" << yaml;
        expect_alike(*read, derived_profile(model, each, gpus), 1e-4);
        // The simulator's step equals the table's.
        const double alone_us =
            read->costs.overhead_us + read->costs.weights_us + 2160 * read->costs.decode_context_ns / 1e3;
        EXPECT_NEAR(1e6 / s.stream_tokens_per_s / alone_us, 1, 1e-3);
        ++count;
      }
    }
  }
  EXPECT_GT(count, 100);
}

TEST(Sizing, WrittenProfileNamesTheSourceOfEveryFigure) {
  const ModelShape model = *load_model_shape("llama-3.1-8b");
  const std::string yaml = profile_yaml(model, gpu("L40S"), 4);
  EXPECT_NE(yaml.find("# 4 x L40S with llama-3.1-8b"), std::string::npos);
  EXPECT_NE(yaml.find("not measured"), std::string::npos);
  EXPECT_NE(yaml.find("0.864 TB/s x 0.76 x 4 x 0.85"), std::string::npos);
  EXPECT_NE(yaml.find("The model's own."), std::string::npos);
  EXPECT_EQ(profile_yaml(model, gpu("A10"), 1).find("The model's own."), std::string::npos)
      << "30,658 tokens of KV are fewer than its 131,072";
  std::string before;
  for (const absl::string_view line : absl::StrSplit(yaml, '\n')) {
    const bool is_figure = absl::StrContains(line, ": ") && !absl::StrContains(line, "#");
    if (is_figure) {
      EXPECT_TRUE(absl::StrContains(before, "#")) << line;
    }
    before = std::string(line);
  }
}

TEST(Sizing, MoreHitsAndLooserLimitsCarryMore) {
  const ModelShape model = *load_model_shape("llama-3.1-8b");
  Load load;
  const double usual = size_node(model, gpu("A100-80"), 1, load).requests_per_s;
  load.hit = 0.2;
  EXPECT_LT(size_node(model, gpu("A100-80"), 1, load).requests_per_s, usual * 0.7);
  load.hit = 0.85;
  load.tpot_ms = 12;
  EXPECT_LT(size_node(model, gpu("A100-80"), 1, load).requests_per_s, usual);
  load.tpot_ms = 1;
  EXPECT_EQ(size_node(model, gpu("A100-80"), 1, load).requests_per_s, 0)
      << "reading the weights takes longer";
}

TEST(Sizing, TakesTheCheapestNumberOfGpus) {
  const ModelShape model = *load_model_shape("llama-3.1-8b");
  for (const double rate : {0.0, 200.0}) {
    Load load;
    load.rate = rate;
    for (const Gpu& each : known_gpus()) {
      const Sizing cheapest = cheapest_node(model, each, load);
      ASSERT_GT(cheapest.requests_per_s, 0) << each.name;
      for (const int gpus : {1, 2, 4, 8}) {
        const Sizing s = size_node(model, each, gpus, load);
        if (s.requests_per_s > 0) {
          EXPECT_LE(price_of(cheapest), price_of(s)) << each.name << " " << gpus;
        }
      }
    }
    // A single one is slow, or too slow, for a token within 30 ms: reading the weights takes most of that.
    const Sizing alone = size_node(model, gpu("L40S"), 1, load),
                 l40s = cheapest_node(model, gpu("L40S"), load);
    EXPECT_GT(l40s.gpus, 1);
    EXPECT_LT(price_of(l40s), price_of(alone) / 2);
    EXPECT_TRUE(size_node(model, gpu("A10"), 1, load).fits);
    EXPECT_EQ(size_node(model, gpu("A10"), 1, load).requests_per_s, 0);
    EXPECT_GT(cheapest_node(model, gpu("A10"), load).gpus, 1);
    EXPECT_EQ(cheapest_node(model, gpu("H100"), load).gpus, 1);
  }
  Load few;
  few.rate = 1;
  EXPECT_EQ(cheapest_node(model, gpu("L40S"), few).gpus, 1) << "one is enough for so little";
}

TEST(Sizing, ReportsTheMostGpusIfNoneKeepsTheLimit) {
  Load load;
  load.tpot_ms = 0.5;
  const Sizing slow = cheapest_node(*load_model_shape("llama-3.1-8b"), gpu("A10"), load);
  EXPECT_TRUE(slow.fits);
  EXPECT_EQ(slow.requests_per_s, 0);
  EXPECT_EQ(slow.gpus, 8);
  load.prompt_tokens = 1e7;
  EXPECT_FALSE(cheapest_node(*load_model_shape("llama-3.1-70b"), gpu("A10"), load).fits);
}

TEST(Sizing, TakesAsManyGpusAndNodesAsItNeeds) {
  Load load;
  load.rate = 100;
  const ModelShape large = *load_model_shape("llama-3.1-70b");
  EXPECT_FALSE(size_node(large, gpu("H200"), 1, load).fits);
  EXPECT_TRUE(size_node(large, gpu("H200"), 2, load).fits);
  EXPECT_FALSE(size_node(large, gpu("4090"), 4, load).fits);
  EXPECT_TRUE(size_node(large, gpu("4090"), 8, load).fits);
  const Sizing s = cheapest_node(*load_model_shape("llama-3.1-8b"), gpu("H100"), load);
  EXPECT_GE(static_cast<double>(s.nodes) * s.requests_per_s * load.headroom, load.rate);
  EXPECT_LT(static_cast<double>(s.nodes - 1) * s.requests_per_s * load.headroom, load.rate);
  // Price of a token: that of a node that answers at the planned rate.
  const double tokens_per_hour = s.requests_per_s * load.headroom * load.output_tokens * 3600;
  EXPECT_NEAR(s.price_per_million, s.price_per_hour / tokens_per_hour * 1e6, 1e-9);
}

std::string config_error(const std::string& text) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "sizing_test_model";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "config.json") << text;
  return std::string(load_model_shape(dir.string()).status().message());
}

TEST(Sizing, ReadsConfigJsonAndRefusesWhatItCannotSize) {
  const auto demo = load_model_shape(std::string(TROUPE_SOURCE_DIR) + "/configs/demo-model/");
  ASSERT_TRUE(demo.ok()) << demo.status();
  EXPECT_EQ(demo->name, "demo-model");
  EXPECT_EQ(demo->kv_bytes_per_token(), 2 * 2 * 8 * 2 * 64);
  EXPECT_TRUE(demo->tied_embeddings);
  EXPECT_EQ(demo->context, 2048);
  EXPECT_NE(config_error("{}").find("'vocab_size' is missing"), std::string::npos);
  EXPECT_NE(config_error(R"({"vocab_size": -1})").find("whole number from 1"), std::string::npos);
  EXPECT_NE(config_error(R"({"num_local_experts": 8})").find("only dense"), std::string::npos);
  EXPECT_NE(config_error("[]").find("must be an object"), std::string::npos);
  EXPECT_NE(std::string(load_model_shape("/nowhere").status().message()).find("llama-3.1-8b"),
            std::string::npos);
}

}  // namespace sizing_test
}  // namespace troupe::sim
