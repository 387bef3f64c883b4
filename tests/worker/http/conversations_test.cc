// /v1/conversations between two workers: one computes the other's conversation from its ids, so that the next
// turn finds as much cached there.

#include "worker/http/conversations.h"

#include <gtest/gtest.h>

#include "common/json/json.h"
#include "tests/worker/harness_server.h"
#include "tests/worker/step_gate.h"

namespace troupe::tails_test {

using raw_http::ask;
using raw_http::Reply;
using testing::HarnessServer;
using testing::StepGate;

constexpr Hash128 kSession{7, 7}, kSet{8, 8};

bj::object object_of(const Reply& reply, int status = 200) {
  EXPECT_EQ(reply.status, status) << reply.body;
  auto value = parse_json(reply.body);
  if (!value.ok() || !value->is_object()) ADD_FAILURE() << reply.body;
  return value.ok() && value->is_object() ? value->as_object() : bj::object();
}

std::string text_of(const bj::value& value) {
  return value.is_string() ? std::string(value.as_string()) : to_json(value);
}

std::string ids_text(int first, int count) {
  std::string text = std::to_string(first);
  for (int i = 1; i < count; ++i) text += "," + std::to_string(first + i);
  return text;
}

Reply complete(const HarnessServer& server, const std::string& ids, int max_tokens,
               const std::string& fields = "") {
  return server.complete(R"({"model":"fake","temperature":0,"ignore_eos":true,"max_tokens":)" +
                             std::to_string(max_tokens) + R"(,"prompt":[)" + ids + "]" + fields + "}",
                         {"x-troupe-session: " + kSession.hex(), "x-troupe-set: " + kSet.hex()});
}

Reply tail_of(const HarnessServer& server, const std::string& session) {
  return ask(server.port(), "GET", "/v1/conversations/" + session);
}

int64_t cached(const Reply& reply) {
  return object_of(reply).at("usage").at_pointer("/prompt_tokens_details/cached_tokens").as_int64();
}

std::string next_turn(const Reply& tail) {
  std::string ids = to_json(object_of(tail).at("ids"));
  return ids.substr(1, ids.size() - 2) + ",900,901,902";
}

TEST(ConversationsEndpoint, MovedConversationContinuesUnchanged) {
  const HarnessServer old_home, new_home;
  ASSERT_EQ(complete(old_home, ids_text(300, 41), 12).status, 200);
  const auto list = object_of(ask(old_home.port(), "GET", "/v1/conversations")).at("data").as_array();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(text_of(list[0].at("session")), kSession.hex());
  EXPECT_EQ(list[0].at("tokens"), 52);
  EXPECT_FALSE(list[0].as_object().contains("ids"));
  const Reply tail = tail_of(old_home, kSession.hex());
  EXPECT_EQ(object_of(tail).at("ids").as_array().size(), 52u);
  const auto made = object_of(ask(new_home.port(), "POST", "/v1/conversations", tail.body));
  EXPECT_EQ(made.at("tokens"), 52);
  EXPECT_EQ(made.at("cached_tokens"), 0);
  EXPECT_EQ(object_of(ask(new_home.port(), "POST", "/v1/conversations", tail.body)).at("cached_tokens"), 51)
      << "all but the last, whose step tells that it is there";
  EXPECT_EQ(object_of(tail_of(new_home, kSession.hex())), object_of(tail));
  const Reply there = complete(new_home, next_turn(tail), 5);
  EXPECT_EQ(cached(there), 52);
  const Reply here = complete(old_home, next_turn(tail), 5);
  EXPECT_EQ(cached(here), 52);
  EXPECT_EQ(object_of(there).at("choices"), object_of(here).at("choices"));
}

TEST(ConversationsEndpoint, HandingOnIsRefusedIfDisabled) {
  const HarnessServer server({}, {}, /*hand_on_conversations=*/false);
  ASSERT_EQ(complete(server, ids_text(300, 41), 2).status, 200);
  for (const Reply& reply :
       {ask(server.port(), "GET", "/v1/conversations"), tail_of(server, kSession.hex())}) {
    EXPECT_EQ(reply.status, 403);
    EXPECT_NE(reply.body.find("hand_on_conversations"), std::string::npos) << reply.body;
  }
  const std::string foreign = R"({"model":"fake","session":")" + Hash128{1, 2}.hex() + R"(","ids":[5,6,7]})";
  EXPECT_EQ(ask(server.port(), "POST", "/v1/conversations", foreign).status, 200) << "what comes is taken";
}

TEST(ConversationsEndpoint, KeepTheirSaltAndSet) {
  const HarnessServer old_home, new_home;
  const std::string salted = R"(,"cache_salt":"theirs")";
  ASSERT_EQ(complete(old_home, ids_text(300, 41), 2, salted).status, 200);
  const Reply tail = tail_of(old_home, kSession.hex());
  EXPECT_EQ(text_of(object_of(tail).at("salt")), hash_bytes("theirs").hex());
  EXPECT_EQ(ask(new_home.port(), "POST", "/v1/conversations", tail.body).status, 200);
  EXPECT_EQ(cached(complete(new_home, next_turn(tail), 1)), 0) << "others' KV";
  EXPECT_EQ(cached(complete(new_home, next_turn(tail), 1, salted)), 42);
}

TEST(ConversationsEndpoint, AreListedDuringAnAnswer) {
  StepGate gate;
  std::atomic<int> steps{0};
  HarnessServer server([hook = gate.hook(), &steps](const Batch& batch) {
    return ++steps < 8 ? absl::OkStatus() : hook(batch);
  });
  Reply answer;
  std::thread client([&] { answer = complete(server, ids_text(300, 41), 40); });
  while (steps < 8) std::this_thread::yield();
  Reply list;
  std::thread asker([&] { list = ask(server.port(), "GET", "/v1/conversations"); });
  gate.open();  // the question waits for the step's end
  asker.join();
  client.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(object_of(list).at("data").as_array().size(), 1u);
}

TEST(ConversationsEndpoint, NameTheWrongFieldOfABody) {
  const HarnessServer server;
  const auto body = [](const std::string& session, const std::string& ids, const std::string& more = "") {
    return R"({"model":"fake","session":")" + session + R"(","ids":[)" + ids + "]" + more + "}";
  };
  const std::string name = kSession.hex();
  const struct {
    std::string body, param;
  } cases[] = {
      {body("abc", "1"), "session"},
      {R"({"model":"fake","ids":[1]})", "session"},
      {R"({"session":")" + name + R"(","ids":[1]})", "model"},
      {body(name, ""), "ids"},
      {body(name, "1,-2"), "ids[1]"},
      {body(name, "1,\"2\""), "ids[1]"},
      {body(name, "999999"), "ids"},
      {body(name, ids_text(300, 401)), "ids"},
      {body(name, "1,2", R"(,"prefix_tokens":3)"), "prefix_tokens"},
      {body(name, "1,2", R"(,"salt":7)"), "salt"},
      {body(name, "1,2", R"(,"set":"xyz")"), "set"},
  };
  for (const auto& wrong : cases) {
    const auto error =
        object_of(ask(server.port(), "POST", "/v1/conversations", wrong.body), 400).at("error").as_object();
    EXPECT_EQ(text_of(error.at("param")), wrong.param) << wrong.body;
  }
  EXPECT_EQ(ask(server.port(), "POST", "/v1/conversations", "{").status, 400);
  EXPECT_EQ(ask(server.port(), "POST", "/v1/conversations",
                R"({"model":"x","session":")" + name + R"(","ids":[1]})")
                .status,
            404);
  EXPECT_EQ(ask(server.port(), "DELETE", "/v1/conversations").status, 405);
  for (const std::string& session : {name, std::string("x"), std::string("%00")}) {
    const auto error = object_of(tail_of(server, session), 404).at("error").as_object();
    EXPECT_EQ(text_of(error.at("code")), "conversation_not_found");
  }
}

TEST(ConversationsEndpoint, StoppedEngineStillAnswersTheQuestion) {
  testing::EngineHarness h(testing::EngineHarness::Model{});
  h.engine->stop();
  bool asked = false;
  EXPECT_TRUE(h.engine->ask([&asked](const Scheduler* scheduler) { asked = scheduler == nullptr; }));
  EXPECT_TRUE(asked);
}

TEST(ConversationsEndpoint, LimitQuestionsWaitingForTheEngine) {
  StepGate gate;
  testing::EngineHarness h({.before_step = gate.hook()});
  testing::Collector out;
  ASSERT_TRUE(h.engine->submit(h.request(h.prompt(1, 20), 4), out.sink()).ok());
  while (h.engine->turn_age() == Duration::zero()) std::this_thread::yield();  // within a step
  std::atomic<size_t> answered{0};
  size_t taken = 0;
  while (taken < 1000 && h.engine->ask([&answered](const Scheduler* s) { answered += s != nullptr; }))
    ++taken;
  EXPECT_EQ(taken, Engine::kQuestionsMax);
  gate.open();
  ASSERT_TRUE(out.wait_end());
  for (int i = 0; i < 2000 && answered < taken; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(answered, taken);
}

}  // namespace troupe::tails_test
