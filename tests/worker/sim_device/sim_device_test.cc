// A worker without a model: its text, its faults, and a whole worker behind HTTP.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "common/json/json.h"
#include "tests/common/sanitized.h"
#include "tests/worker/fixture.h"
#include "tests/worker/raw_http.h"
#include "worker/sim_device/fault_injector.h"
#include "worker/sim_device/sim_runner.h"
#include "worker/sim_device/sim_text.h"

namespace troupe::sim_test {

using raw_http::ask;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr double kSlack = kSanitized ? 20 : 1;  // of times

// ---------------------------------------------------------------- words

std::unique_ptr<Tokenizer> tokenizer() {
  auto made = built_in_tokenizer();
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(SimText, EveryTextRoundTrips) {
  const auto words = tokenizer();
  std::string bytes;
  for (int i = 1; i < 128; ++i) bytes.push_back(static_cast<char>(i));
  for (const std::string& text :
       {std::string("The old clock is still slow, isn't it?\n\n  \"No\", she said."),
        std::string("宋江字公明，绰号及时雨。Ünïcödé 🙂 αβγ"), bytes, std::string()}) {
    const auto ids = words->encode(text, true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(words->decode(*ids, false), text);
  }
}

TEST(SimText, TokensAreAboutAsLongAsARealModels) {
  const auto words = tokenizer();
  const auto bytes_per_token = [&words](const std::string& text) {
    return static_cast<double>(text.size()) / static_cast<double>(words->encode(text, true)->size());
  };
  const double english = bytes_per_token(
      "Lady Sevina leans against the railing, watching the harbour lights flicker across the black water. "
      "\"You came back,\" she says quietly, without turning around. \"I had almost stopped believing that "
      "anyone "
      "would.\" She adjusts her gloves and waits for the answer, half smiling, half afraid of what the "
      "messenger "
      "might bring from the capital.");
  EXPECT_GT(english, 3.0);
  EXPECT_LT(english, 4.5);
  const double chinese = bytes_per_token("宋江为人仗义疏财喜好结交天下好汉后上梁山坐第一把交椅");
  EXPECT_GE(chinese, 1.5);
  EXPECT_LE(chinese, 3.0);
}

TEST(SimText, EncodedPrefixStaysWhenMessagesFollow) {
  const auto words = tokenizer();
  auto chat = built_in_chat_template();
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto ids_of = [&](std::vector<std::string> contents) {
    bj::array messages;
    for (const auto& content : contents) messages.push_back({{"role", "user"}, {"content", content}});
    const auto text = (*chat)->render({{"messages", messages}, {"add_generation_prompt", false}});
    EXPECT_TRUE(text.ok()) << text.status();
    return *words->encode(*text, false);
  };
  const auto shorter = ids_of({"You play Newt", "on the r"});
  const auto longer = ids_of({"You play Newt", "on the r", "oad<|im_end|> \n"});
  ASSERT_LT(shorter.size(), longer.size());
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
}

TEST(SimText, FillerRepeatsWithoutSpecialTokens) {
  const auto words = tokenizer();
  const auto filler = filler_tokens(*words);
  ASSERT_TRUE(filler.ok());
  EXPECT_GT(filler->size(), 80u);
  for (const TokenId id : *filler) EXPECT_FALSE(words->is_special(id));
  EXPECT_EQ(words->decode(*filler, true).rfind(" I was thinking of you", 0), 0u);
}

// ---------------------------------------------------------------- steps

Batch decode_batch(const std::vector<TokenId>& ids, int position) {
  Batch batch;
  BatchItem item;
  item.ids = ids, item.count = static_cast<int32_t>(ids.size());
  item.start = 100 + position, item.samples = true, item.sample_position = position;
  batch.items = {item};
  return batch;
}

TEST(SimRunner, StepsFollowTheProfileWithoutDrift) {
  Metrics metrics;
  SimFaults faults(metrics);
  SimRunner::Options options;
  options.costs.weights_us = 8000;
  options.speed = 2;
  options.filler = {5, 6, 7};
  SimRunner runner(options, faults);
  const std::vector<TokenId> ids = {1};
  constexpr int kSteps = 100;
  double best_ms = 1e9;
  for (int pass = 0; pass < 3; ++pass) {  // the machine may stall in one
    const auto begin = steady_clock::now();
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_TRUE(runner.launch(decode_batch(ids, i), {}).ok());
      const StepOutput output = runner.collect();
      ASSERT_EQ(output.tokens.size(), 1u);
      EXPECT_EQ(output.tokens[0], options.filler[static_cast<size_t>(i) % 3]);
      std::this_thread::sleep_for(milliseconds(2));  // the engine's time between two steps
    }
    const double ms = std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
    // A runner catches up with the delay of the step before.
    EXPECT_GE(ms, 4.0 * kSteps * (pass == 0 ? 0.99 : 0.93));
    best_ms = std::min(best_ms, ms);
  }
  // 600 ms with the pauses. The machine may stall, a few times, for longer than a runner catches up with.
  EXPECT_LE(best_ms, 4.0 * kSteps * 1.03 + 90 * kSlack) << "the pauses are not added";
}

TEST(SimRunner, ClearedFaultReleasesTheStepUnderWay) {
  Metrics metrics;
  SimFaults faults(metrics);
  SimRunner::Options options;
  options.costs.weights_us = 1000;
  options.filler = {5};
  SimRunner runner(options, faults);
  faults.set({.stall_s = 60}, steady_clock::now());
  const std::vector<TokenId> ids = {1};
  auto step = std::async(std::launch::async, [&] { return runner.launch(decode_batch(ids, 0), {}).ok(); });
  EXPECT_EQ(step.wait_for(milliseconds(100)), std::future_status::timeout);
  faults.clear(steady_clock::now());
  ASSERT_EQ(step.wait_for(milliseconds(2000)), std::future_status::ready);
  EXPECT_TRUE(step.get());
}

// ---------------------------------------------------------------- faults

TEST(SimFaults, RefusesBadSettingsByName) {
  for (const char* body :
       {R"({"stall_s": -1})", R"({"stall_s": "3"})", R"({"slow_factor": 0})", R"({"drop_rate": 1.5})",
        R"({"error_rate": null})", R"({"error_status": 200})", R"({"error_status": 503.0})",
        R"({"refuse": 1})", R"({"seed": -1})", R"({"colour": "blue"})"}) {
    const auto parsed = parse_sim_faults(body);
    ASSERT_FALSE(parsed.ok()) << body;
    const std::string key = std::string(body).substr(2, std::string(body).find('"', 2) - 2);
    EXPECT_EQ(parsed.error().http_status, 400);
    EXPECT_EQ(parsed.error().param, key) << body;
  }
  EXPECT_FALSE(parse_sim_faults("[]").ok());
  EXPECT_FALSE(parse_sim_faults("{").ok());
  const auto parsed =
      parse_sim_faults(R"({"stall_s": 1.5, "slow_factor": 2, "error_status": 500, "refuse": true})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().stall_s, 1.5);
  EXPECT_EQ(parsed.value().slow_factor, 2);
  EXPECT_EQ(parsed.value().error_status, 500);
  EXPECT_TRUE(parsed.value().refuse);
}

std::vector<int> fates(SimFaults& faults, int64_t seed) {
  faults.set({.drop_rate = 0.3, .error_rate = 0.2, .seed = seed}, steady_clock::now());
  std::vector<int> result;
  for (int i = 0; i < 2000; ++i) {
    const auto fate = faults.next_fate();
    result.push_back(fate.error_status != 0 ? fate.error_status : fate.dropped_at_write);
  }
  return result;
}

TEST(SimFaults, ChanceDependsOnTheSeedAlone) {
  Metrics metrics;
  SimFaults faults(metrics);
  const auto first = fates(faults, 7);
  EXPECT_EQ(fates(faults, 7), first);
  EXPECT_NE(fates(faults, 8), first);
  const auto errors = std::count(first.begin(), first.end(), 503);
  const auto drops =
      std::count_if(first.begin(), first.end(), [](int fate) { return fate > 0 && fate < 100; });
  EXPECT_NEAR(static_cast<double>(errors), 2000 * 0.2, 60);
  EXPECT_NEAR(static_cast<double>(drops), 2000 * 0.8 * 0.3, 65);
}

// ---------------------------------------------------------------- a whole worker

WorkerSettings sim_settings() {
  WorkerSettings settings;
  settings.device = "sim";
  settings.server.http.port = 0;
  settings.sim_speed = 4;
  settings.log_level = LogLevel::kError;
  EXPECT_TRUE(resolve_worker_settings(settings).ok());
  return settings;
}

bj::value json_of(const raw_http::Reply& reply) {
  auto value = parse_json(reply.body);
  EXPECT_TRUE(value.ok()) << value.status() << "\n" << reply.body;
  return value.ok() ? *value : bj::value();
}

class SimWorker : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { worker = std::make_unique<worker_fixture::Worker>(sim_settings()); }
  static void TearDownTestSuite() { worker.reset(); }
  void TearDown() override { faults("{}"); }
  static raw_http::Reply faults(const std::string& body) {
    auto reply = ask(worker->port(), "POST", "/sim/faults", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply;
  }
  static raw_http::Reply chat(const std::string& question, const std::string& fields) {
    return ask(worker->port(), "POST", "/v1/chat/completions",
               R"({"model":"study","messages":[{"role":"system","content":")" + card() +
                   R"("},{"role":"user","content":")" + question + "\"}]," + fields + "}");
  }
  // A stream that breaks off before its end, or before its beginning.
  static bool breaks_off() {
    try {
      return chat("Who?", R"("max_tokens":40,"stream":true)").status == 0;
    } catch (const std::runtime_error&) {
      return true;
    }
  }
  static std::string card() {
    std::string text = "You are the old keeper of the lighthouse.";
    for (int i = 0; i < 20; ++i) text += " He has always liked the sea and the long nights.";
    return text;
  }
  static std::unique_ptr<worker_fixture::Worker> worker;
};
std::unique_ptr<worker_fixture::Worker> SimWorker::worker;

TEST_F(SimWorker, AnswersWithRequestedLengthAndCountsCachedTokens) {
  const auto first = json_of(chat("Who are you?", R"("max_tokens":5)"));
  EXPECT_EQ(first.at_pointer("/usage/completion_tokens").as_int64(), 5);
  EXPECT_EQ(first.at_pointer("/choices/0/finish_reason"), "length");
  EXPECT_EQ(first.at_pointer("/choices/0/message/content"), " I was thinking of");
  const auto second = json_of(chat("Where do you live?", R"("max_tokens":5)"));
  const int64_t cached = second.at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64();
  const int64_t prompt = second.at_pointer("/usage/prompt_tokens").as_int64();
  EXPECT_LT(cached, prompt);
  EXPECT_GT(cached, prompt - 48) << "all but the question and what does not fill a block";
  const auto again = json_of(chat("Where do you live?", R"("max_tokens":5)"));
  const int64_t cached_again = again.at_pointer("/usage/prompt_tokens_details/cached_tokens").as_int64();
  EXPECT_LT(cached_again, prompt) << "the last token is always computed";
  EXPECT_GE(cached_again, (prompt - 1) / 16 * 16) << "every full block";
}

TEST_F(SimWorker, SeedDeterminesLengthWithoutMaxTokens) {
  const auto length = [](int seed) {
    return json_of(chat("Who?", "\"seed\":" + std::to_string(seed)))
        .at_pointer("/usage/completion_tokens")
        .as_int64();
  };
  const int64_t first = length(1);
  EXPECT_EQ(length(1), first);
  std::vector<int64_t> lengths;
  for (int seed = 2; seed < 8; ++seed) lengths.push_back(length(seed));
  EXPECT_NE(*std::min_element(lengths.begin(), lengths.end()),
            *std::max_element(lengths.begin(), lengths.end()));
}

TEST_F(SimWorker, InjectsRequestedFaults) {
  faults(R"({"error_rate": 1, "error_status": 500})");
  EXPECT_EQ(chat("Who?", R"("max_tokens":3)").status, 500);
  faults(R"({"refuse": true})");
  EXPECT_EQ(chat("Who?", R"("max_tokens":3)").status, 503);
  EXPECT_EQ(ask(worker->port(), "GET", "/readyz").status, 503);
  faults(R"({"drop_rate": 1})");
  EXPECT_EQ(ask(worker->port(), "GET", "/readyz").status, 200);
  EXPECT_EQ(chat("Who?", R"("max_tokens":3)").status, 0) << "closed before an answer in one piece";
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(breaks_off()) << "stream " << i;
  }
  faults("{}");
  EXPECT_EQ(chat("Who?", R"("max_tokens":3)").status, 200);
  const auto metrics = ask(worker->port(), "GET", "/metrics").body;
  EXPECT_NE(metrics.find("troupe_sim_faults_total{kind=\"drop\"} 9"), std::string::npos);
  EXPECT_NE(metrics.find("troupe_sim_faults_total{kind=\"error\"} 2"), std::string::npos);
}

TEST_F(SimWorker, StallsAndSlowsDown) {
  const auto seconds = [](int max_tokens) {
    const auto begin = steady_clock::now();
    EXPECT_EQ(chat("Who?", "\"max_tokens\":" + std::to_string(max_tokens)).status, 200);
    return std::chrono::duration<double>(steady_clock::now() - begin).count();
  };
  const double usual = seconds(40);  // 45 ms at four times 4.5 ms a token
  EXPECT_LT(usual, 5);
  faults(R"({"slow_factor": 10})");
  EXPECT_GT(seconds(40), 0.44);
  faults(R"({"stall_s": 0.4})");
  const double stalled = seconds(1);
  EXPECT_GT(stalled, 0.35);
  EXPECT_LT(stalled, 5);
}

TEST_F(SimWorker, RefusesBadFaultsAndRealWorkersLackThePath) {
  EXPECT_EQ(ask(worker->port(), "POST", "/sim/faults", R"({"slow_factor": 0})").status, 400);
  EXPECT_EQ(ask(worker->port(), "GET", "/sim/faults").status, 405);
  EXPECT_EQ(json_of(faults(R"({"seed": 3})")).at("seed").as_int64(), 3);
}

}  // namespace troupe::sim_test
