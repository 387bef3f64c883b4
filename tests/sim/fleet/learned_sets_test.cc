// The detector on whole workloads: synthetic personas, whose true sets are known, and a published trace,
// whose sets are not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gateway/route/key/shared_prefix_detector.h"
#include "sim/trace/trace.h"
#include "sim/workload/workload.h"

namespace troupe::sim {
namespace learned_sets_test {

using route::PrefixKey;
using route::SharedPrefixDetector;

Hash128 hash_of(uint64_t id) {
  return hash_bytes({reinterpret_cast<const char*>(&id), sizeof id});
}

PrefixKey key_of(const TraceRequest& request) {
  PrefixKey key;
  if (request.session != 0) key.session = hash_of(request.session);
  key.prompt_tokens = request.input_tokens;
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    route::Anchor anchor;
    anchor.hash = hash_of(request.blocks[i]);
    anchor.tokens =
        std::min<int64_t>(static_cast<int64_t>(i + 1) * request.block_tokens, request.input_tokens);
    key.anchors.push_back(anchor);
  }
  return key;
}

// Accuracy of learned sets against true ones, request by request.
struct Accuracy {
  std::map<std::pair<uint64_t, Hash128>, int64_t> met;
  std::map<uint64_t, int64_t> of_persona;
  int64_t requests = 0, unkeyed = 0, off = 0;

  void add(const TraceRequest& request, const PrefixKey& key) {
    requests += 1;
    of_persona[request.set] += 1;
    if (key.set.is_zero()) {
      unkeyed += 1;
      return;
    }
    met[{request.set, key.set}] += 1;
    // A long chain's anchors are kept a few blocks apart.
    off += std::abs(key.prefix_tokens - request.prefix_tokens) > std::max(64, request.prefix_tokens / 20);
  }
  // Requests whose learned set is its persona's most common one, and belongs mostly to that persona.
  double right() const {
    std::map<uint64_t, std::pair<int64_t, Hash128>> of_true;
    std::map<Hash128, std::pair<int64_t, uint64_t>> of_learned;
    for (const auto& [pair, count] : met) {
      of_true[pair.first] = std::max(of_true[pair.first], {count, pair.second});
      of_learned[pair.second] = std::max(of_learned[pair.second], {count, pair.first});
    }
    int64_t good = 0;
    for (const auto& [pair, count] : met) {
      if (of_true[pair.first].second == pair.second && of_learned[pair.second].second == pair.first)
        good += count;
    }
    return static_cast<double>(good) / static_cast<double>(requests);
  }
};

Accuracy run_personas(PersonaWorkload workload, double warmup_s) {
  auto source = PersonaSource::make(workload, 7);
  EXPECT_TRUE(source.ok()) << source.status();
  SharedPrefixDetector sketch((route::SharedPrefixDetectorOptions()));
  Accuracy accuracy;
  TraceRequest request;
  while (true) {
    const auto more = (*source)->next(request);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    PrefixKey key = key_of(request);
    sketch.refine(key);
    const double at_s = std::chrono::duration<double>(request.at).count();
    if (at_s >= warmup_s) accuracy.add(request, key);
    sketch.learn(key, TimePoint{} + std::chrono::hours(1) + request.at);
  }
  return accuracy;
}

TEST(LearnedSets, MatchThePersonas) {
  PersonaWorkload workload;
  workload.personas = 200;
  workload.zipf = 0.9;
  workload.rate = 60;
  workload.duration_s = 900;
  const Accuracy accuracy = run_personas(workload, 600);
  const double unkeyed = static_cast<double>(accuracy.unkeyed) / static_cast<double>(accuracy.requests);
  const double off = static_cast<double>(accuracy.off) / static_cast<double>(accuracy.requests);
  std::printf("200 personas: %lld requests, %.4f right, %.4f not keyed, %.4f off by more than a twentieth\n",
              static_cast<long long>(accuracy.requests), accuracy.right(), unkeyed, off);
  EXPECT_GE(accuracy.right(), 0.99);
  EXPECT_LE(off, 0.01);
}

TEST(LearnedSets, OfThePublishedTraceAreNotItsFirstBlock) {
  const char* data = std::getenv("TROUPE_DATA");
  const std::filesystem::path folder = data != nullptr ? data : TROUPE_SOURCE_DIR "/../shared/data";
  const std::string path = (folder / "mooncake/conversation_first30min.jsonl.gz").string();
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "no " << path << ": set TROUPE_DATA to the folder with published traces";
  TraceOptions options;
  options.spread = std::chrono::seconds(3);
  auto reader = TraceReader::open(path, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  SharedPrefixDetector sketch((route::SharedPrefixDetectorOptions()));
  TraceRequest request;
  uint64_t first_block = 0;
  int64_t requests = 0, keyed = 0, by_first = 0, by_first_late = 0;
  std::map<int64_t, int64_t> depths;
  std::map<Hash128, int64_t> sets;
  while (true) {
    const auto more = (*reader)->next(request);
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    if (first_block == 0) first_block = request.blocks[0];
    EXPECT_EQ(request.blocks[0], first_block) << "common to all";
    PrefixKey key = key_of(request);
    sketch.refine(key);
    sketch.learn(key, TimePoint{} + std::chrono::hours(1) + request.at);
    requests += 1;
    if (key.set.is_zero()) continue;
    keyed += 1;
    sets[key.set] += 1;
    depths[(key.prefix_tokens + 511) / 512] += 1;
    by_first += key.prefix_tokens <= 512;
    by_first_late += key.prefix_tokens <= 512 && requests > 300;
  }
  std::printf("trace: %lld requests, %lld keyed in %zu sets, %lld by the first block (%lld late)\n",
              static_cast<long long>(requests), static_cast<long long>(keyed), sets.size(),
              static_cast<long long>(by_first), static_cast<long long>(by_first_late));
  for (const auto& [depth, count] : depths)
    std::printf("  %lld blocks: %lld\n", static_cast<long long>(depth), static_cast<long long>(count));
  EXPECT_EQ(by_first_late, 0);
}

}  // namespace learned_sets_test
}  // namespace troupe::sim
