// One persona for everybody and little traffic: no load drives conversations apart, yet the whole fleet's
// memory is theirs.

#include "tests/sim/simulator_testing.h"

namespace troupe::sim {
namespace one_persona_test {

using namespace simulator_test;

constexpr int32_t kCardBlocks = 32, kOwnBlocks = 64;  // of 16 tokens
constexpr uint64_t kConversations = 100;
// No two things have one name.
constexpr uint64_t kPersona = 777'777, kFirstSession = 50'000, kFirstOwnBlock = 5'000,
                   kFirstLastBlock = 1'000'000;

// Each conversation is asked about twice, one request at a time.
std::vector<TraceRequest> asked_twice() {
  std::vector<TraceRequest> requests;
  for (uint64_t i = 0; i < 2 * kConversations; ++i) {
    const uint64_t session = i % kConversations;
    TraceRequest& ask = requests.emplace_back();
    ask.at = std::chrono::milliseconds(250 * (i + 1));
    ask.block_tokens = 16;
    ask.input_tokens = 16 * (kCardBlocks + kOwnBlocks) + 5;
    ask.output_tokens = 2;
    ask.set = kPersona;
    ask.session = kFirstSession + session;
    ask.prefix_tokens = 16 * kCardBlocks;
    for (uint64_t block = 0; block < kCardBlocks; ++block) ask.blocks.push_back(1 + block);
    for (uint64_t block = 0; block < kOwnBlocks; ++block)
      ask.blocks.push_back(kFirstOwnBlock + kOwnBlocks * session + block);
    ask.blocks.push_back(kFirstLastBlock + i);
  }
  return requests;
}

TEST(OnePersona, FillsTheMemoryOfAllNodes) {
  SimulationOptions options = options_of(4);
  options.profile.kv_cache_tokens = 65'536;  // of 103,000 that the conversations need
  options.profile.max_model_len = 8192;
  ListSource source(asked_twice());
  const Result result = run(source, options);
  // The card is found a hundred times, and then nearly everything.
  EXPECT_GT(result.infinite_hit, 0.6);
  EXPECT_GT(result.hit_tokens, 0.95 * result.infinite_hit);
  ListSource again(asked_twice());
  options.nodes = 1;
  EXPECT_LT(run(again, options).hit_tokens, 0.8 * result.infinite_hit) << "one node's memory is too small";
}

}  // namespace one_persona_test
}  // namespace troupe::sim
