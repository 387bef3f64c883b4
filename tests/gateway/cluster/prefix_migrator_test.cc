// A worker's sets are computed elsewhere before its requests go there: the cached texts, and the requests for
// them.

#include "gateway/cluster/prefix_migrator.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/api/conversations.h"
#include "common/api/prefix.h"
#include "gateway/cluster/prefix_text_cache.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

PrefixTextCache::Text text_of(size_t bytes) {
  PrefixTextCache::Text text;
  text.model = "demo";
  text.body = std::string(bytes, 'x');
  return text;
}

TEST(PrefixTextCache, KeepsTheMostRecentlyUsedWithinItsBudget) {
  PrefixTextCache texts(20'000);
  for (uint64_t i = 0; i < 100; ++i) {
    texts.put(Hash128{1, i}, text_of(1000));
    EXPECT_LE(texts.bytes(), 20'000u);
    EXPECT_TRUE(texts.use(Hash128{1, 0})) << i;
  }
  EXPECT_GE(texts.size(), 10u);
  EXPECT_EQ(texts.find(Hash128{1, 50}), nullptr);
  ASSERT_NE(texts.find(Hash128{1, 99}), nullptr);
  texts.put(Hash128{2, 0}, text_of(19'000));
  EXPECT_EQ(texts.find(Hash128{2, 0}), nullptr) << "it would push out all others";
  EXPECT_EQ(texts.sets_of("demo").size(), texts.size());
  EXPECT_TRUE(texts.sets_of("other").empty());
  PrefixTextCache none(0);
  none.put(Hash128{1, 0}, text_of(1));
  EXPECT_EQ(none.size(), 0u);
}

// A prefix computed ahead has the key of the requests that it is for.
void expect_same_set(const std::string& body, GenerateRequest::Kind kind) {
  auto request =
      kind == GenerateRequest::Kind::kChat ? parse_chat_request(body) : parse_completion_request(body);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const route::PrefixKey key = route::make_prefix_key(request.value(), "");
  const std::string made = prefix_body(request.value(), request->model, key);
  HttpRequest asked;
  asked.body = made;
  const RequestParserOptions options;
  ApiParser parser;
  auto ahead = parse_prefix(asked, {options, parser, ""});
  ASSERT_TRUE(ahead.ok()) << made << ahead.error().message;
  EXPECT_EQ(ahead->key.set, key.set) << made;
  EXPECT_EQ(ahead->model, "demo");
  EXPECT_EQ(parse_prefix_request(made)->source.documents_json, request->documents_json);
}

TEST(PrefixTextCache, BodyHasTheSetOfItsRequest) {
  const auto chat = GenerateRequest::Kind::kChat, completion = GenerateRequest::Kind::kCompletion;
  expect_same_set(chat_body("You are \"Bo\"\n\\ – 宋江", "Hi"), chat);
  expect_same_set(
      R"({"model":"demo","documents":[{"text":"d"}],"cache_salt":"s\"","chat_template_kwargs":{"a":1},"tools":[{"type":"function",)"
      R"("function":{"name":"f"}}],"messages":[{"role":"system","name":"x","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"q"}]})",
      chat);
  expect_same_set(R"({"model":"demo","prompt":")" + std::string(5000, 'y') + "\"}", completion);
  std::string ids = "1";
  for (int i = 2; i < 2000; ++i) ids += "," + std::to_string(i);
  expect_same_set(R"({"model":"demo","prompt":[)" + ids + "]}", completion);
}

TEST(PrefixTextCache, PromptIsCutBetweenCharacters) {
  std::string prompt;
  for (int i = 0; i < 2000; ++i) prompt += "宋江";
  for (const std::string begin : {"", "a", "ab"}) {
    auto request = parse_completion_request(R"({"model":"demo","prompt":")" + begin + prompt + "\"}");
    ASSERT_TRUE(request.ok());
    const std::string made =
        prefix_body(request.value(), "demo", route::make_prefix_key(request.value(), ""));
    EXPECT_TRUE(is_valid_utf8(made));
    EXPECT_TRUE(parse_prefix_request(made).ok()) << made;
  }
}

// A worker that computes a requested prefix or conversation once the test lets it.
struct Ahead {
  bool open = true;
  std::vector<std::string> asked;         // bodies
  std::vector<CachedConversation> tails;  // reported by it
  std::vector<std::string> made;          // bodies of other workers' conversations
};

Task<void> answer_conversations(Ahead& ahead, Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  if (request.method == "POST") {
    ahead.made.push_back(request.body);
    Timer timer(exchange.executor());
    while (!ahead.open) {
      timer.expires_after(1ms);
      co_await timer.async_wait(use_task);
    }
    co_await exchange.respond(200, headers, conversation_made_json(500, 100));
    co_return;
  }
  const std::string_view session = conversation_session_of(request.path);
  if (session.empty()) {
    co_await exchange.respond(200, headers, conversation_list_json(ahead.tails));
    co_return;
  }
  for (CachedConversation tail : ahead.tails) {
    if (tail.session.hex() != session) continue;
    tail.ids = {1, 2, static_cast<int32_t>(tail.session.lo)};
    co_await exchange.respond(200, headers, conversation_json(tail));
    co_return;
  }
  co_await exchange.respond(404, headers, "{}");
}

Task<void> answer_worker(Ahead& ahead, StubWorker& stub, Exchange& exchange) {
  if (exchange.request().path.starts_with(kConversationsPath)) {
    co_await answer_conversations(ahead, exchange);
    co_return;
  }
  if (exchange.request().path != kPrefixesPath) {
    co_await answer_whole(stub, exchange);
    co_return;
  }
  ahead.asked.push_back(exchange.request().body);
  Timer timer(exchange.executor());
  while (!ahead.open) {
    timer.expires_after(1ms);
    co_await timer.async_wait(use_task);
  }
  PrefixState state;
  state.tokens = 320;
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, prefix_json(state));
}

CachedConversation tail_of(const std::string& model, Hash128 session) {
  CachedConversation tail;
  tail.model = model;
  tail.session = session;
  tail.prefix_tokens = 2;
  tail.tokens = 500;
  return tail;
}

class PrefixMigratorTest : public ::testing::Test {
 protected:
  static constexpr int kPersonas = 40;

  PrefixMigratorTest() {
    loop_.call([this] {
      for (StubWorker* stub : {&a_, &b_}) tell_load(*stub, "1");
    });
  }
  static void tell_load(StubWorker& stub, const std::string& epoch) {
    stub.load_status = 200;
    stub.load.epoch = stub.id() + "/" + epoch;
    stub.load.ready = true;
    stub.load.block_size = 16;
    stub.load.kv_blocks_total = stub.load.kv_blocks_free = 10'000;
    stub.load.max_num_seqs = 64;
  }
  StubAnswer at(Ahead& ahead) {
    return [&ahead](StubWorker& stub, Exchange& e) { return answer_worker(ahead, stub, e); };
  }
  static std::string card(int persona) {
    return "Persona " + std::to_string(persona) + std::string(1200, 'x');
  }
  Answer ask(TestGateway& gateway, int persona) {
    const Answer answer = gateway.ask(chat_body(card(persona), "Hi " + std::to_string(++questions_)));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer;
  }
  // The worker of each persona.
  std::vector<std::string> places(TestGateway& gateway) {
    std::vector<std::string> found;
    for (int p = 0; p < kPersonas; ++p) found.push_back(ask(gateway, p).route("node"));
    return found;
  }
  void warm_up(TestGateway& gateway) {
    for (int i = 0; i < 3; ++i) places(gateway);
  }
  static int drain(TestGateway& gateway, const StubWorker& stub) {
    return gateway.admin_send("POST", "/admin/workers/" + stub.id() + "/drain", "").status;
  }

  Loop loop_;
  Ahead at_a_, at_b_;
  StubWorker a_{loop_, at(at_a_)}, b_{loop_, at(at_b_)};
  int questions_ = 0;
};

TEST_F(PrefixMigratorTest, SetsOfADrainedWorkerMoveOnceComputed) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  warm_up(gateway);
  const std::vector<std::string> before = places(gateway);
  const auto there = static_cast<size_t>(std::count(before.begin(), before.end(), b_.id()));
  ASSERT_GT(there, 0u);
  loop_.call([this] { at_a_.open = false; });
  EXPECT_EQ(drain(gateway, b_), 200);
  EXPECT_TRUE(loop_.eventually([this] { return at_a_.asked.size() >= 2; }));
  EXPECT_EQ(places(gateway), before) << "nothing has moved yet";
  EXPECT_EQ(loop_.call([this] { return at_a_.asked.size(); }), 2u) << "two at once";
  loop_.call([this] { at_a_.open = true; });
  EXPECT_TRUE(gateway.becomes(1, "draining"));
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  EXPECT_EQ(loop_.call([this] { return at_a_.asked.size(); }), there);
  EXPECT_GT(gateway.metric("troupe_gateway_moved_tokens_total{how=\"computed\"}"), 0);
  EXPECT_EQ(gateway.metric("troupe_gateway_prefix_texts"), kPersonas);
  for (const std::string& body : at_a_.asked) EXPECT_NE(body.find("Persona "), std::string::npos);
}

TEST_F(PrefixMigratorTest, ConversationsMoveBeforeTheirSetsMostRecentFirst) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  warm_up(gateway);
  const std::vector<std::string> before = places(gateway);
  loop_.call([this] {
    at_a_.open = false;
    for (uint64_t s = 1; s <= 9; ++s) {
      at_b_.tails.push_back(tail_of("demo", {5, s}));
    }
  });
  EXPECT_EQ(drain(gateway, b_), 200);
  const auto made_count = [this] { return loop_.call([this] { return at_a_.made.size(); }); };
  EXPECT_TRUE(loop_.eventually([this] { return at_a_.made.size() == 4; })) << "so many at once";
  EXPECT_EQ(places(gateway), before) << "their sets wait";
  EXPECT_EQ(made_count(), 4u);
  EXPECT_TRUE(loop_.call([this] { return at_a_.asked.empty(); }));
  loop_.call([this] { at_a_.open = true; });
  EXPECT_TRUE(gateway.becomes(1, "draining"));
  EXPECT_EQ(made_count(), 9u);
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  EXPECT_EQ(gateway.metric("troupe_gateway_moved_conversations_total"), 9);
  auto first = parse_conversation(at_a_.made.at(0));
  ASSERT_TRUE(first.ok());
  EXPECT_LE(first->session.lo, 4u);
  EXPECT_EQ(first->ids.size(), 3u) << "as the worker told them";
}

// The worker reports conversations that it has lost since, and hangs at others.
TEST_F(PrefixMigratorTest, ImmovableConversationsDoNotDelayTheDrain) {
  GatewayConfig config = TestGateway::quick_config();
  config.migrator.deadline = 600ms;
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()}, config);
  warm_up(gateway);
  loop_.call([this] {
    at_a_.open = false;
    for (uint64_t s = 1; s <= 9; ++s) at_b_.tails.push_back(tail_of("demo", {5, s}));
    at_b_.tails.push_back(tail_of("other", {6, 1}));
  });
  EXPECT_EQ(drain(gateway, b_), 200);
  EXPECT_TRUE(gateway.becomes(1, "draining"));
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  EXPECT_EQ(gateway.metric("troupe_gateway_moved_conversations_total"), 0);
  loop_.call([this] { at_a_.open = true; });
}

TEST_F(PrefixMigratorTest, SetsMoveAtTheDeadlineThoughNotComputed) {
  GatewayConfig config = TestGateway::quick_config();
  config.migrator.deadline = 300ms;
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()}, config);
  warm_up(gateway);
  loop_.call([this] { at_a_.open = false; });
  EXPECT_EQ(drain(gateway, b_), 200);
  EXPECT_TRUE(gateway.becomes(1, "draining"));
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  loop_.call([this] { at_a_.open = true; });
}

TEST_F(PrefixMigratorTest, SetsMoveAtOnceWhenTextsAreNotKept) {
  GatewayConfig config = TestGateway::quick_config();
  config.migrator.enabled = false;
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()}, config);
  warm_up(gateway);
  EXPECT_EQ(drain(gateway, b_), 200);
  EXPECT_EQ(gateway.worker_state(1), "draining");
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  EXPECT_TRUE(at_a_.asked.empty());
}

TEST_F(PrefixMigratorTest, LeavingWorkerGivesNotice) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  warm_up(gateway);
  const std::vector<std::string> before = places(gateway);
  loop_.call([this] {
    at_a_.open = false;
    b_.ready_status = 503;
    b_.ready_body = R"({"status":"leaving","takes_requests_for_ms":60000})";
  });
  EXPECT_TRUE(loop_.eventually([this] { return !at_a_.asked.empty(); }));
  EXPECT_EQ(places(gateway), before);
  loop_.call([this] { at_a_.open = true; });
  EXPECT_TRUE(gateway.becomes(1, "draining"));
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id()));
  // Its successor begins with an empty cache.
  loop_.call([this] {
    tell_load(b_, "2");
    at_b_.open = false;
    b_.ready_status = 200;
    b_.ready_body = "{}";
  });
  EXPECT_TRUE(gateway.becomes(1, "ready"));
  EXPECT_TRUE(loop_.eventually([this] { return !at_b_.asked.empty(); }));
  EXPECT_EQ(places(gateway), std::vector<std::string>(kPersonas, a_.id())) << "it has nothing yet";
  EXPECT_LT(loop_.call([&] { return gateway.gateway->router().view().node(1).weight; }), 1);
  loop_.call([this] { at_b_.open = true; });
  EXPECT_TRUE(loop_.eventually([this] { return at_b_.asked.size() >= 3; }));
}

TEST_F(PrefixMigratorTest, StartingFleetComputesNoPrefixesAhead) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  EXPECT_TRUE(gateway.becomes(0, "ready"));
  EXPECT_TRUE(gateway.becomes(1, "ready"));
  EXPECT_EQ(loop_.call([&] { return gateway.gateway->router().view().node(1).weight; }), 1);
  places(gateway);
  EXPECT_TRUE(at_a_.asked.empty() && at_b_.asked.empty());
}

TEST_F(PrefixMigratorTest, TextOfAPersonaAskedOnceIsNotKept) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  places(gateway);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(gateway.metric("troupe_gateway_prefix_texts"), 0);
}

}  // namespace
}  // namespace troupe::gateway_test
