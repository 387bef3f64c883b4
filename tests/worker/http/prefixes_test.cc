// POST /v1/prefixes and its effects, with the demo model behind a real server.

#include "worker/http/prefixes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "common/json/json.h"
#include "tests/worker/fixture.h"
#include "tests/worker/harness_server.h"
#include "tests/worker/raw_http.h"

namespace troupe::prefixes_test {

using namespace std::chrono_literals;
using raw_http::ask;
using raw_http::Connection;
using raw_http::Reply;
using raw_http::request_bytes;

WorkerSettings small_settings() {
  WorkerSettings settings = worker_fixture::demo_settings();
  settings.runner.kv_cache_tokens = 1024;
  settings.scheduler.max_model_len = 512;
  return settings;
}

// A different text for every name, of some hundred tokens.
std::string persona(const std::string& name) {
  std::string text = "You are playing " + name + ".";
  for (int i = 0; i < 12; ++i) text += " " + name + " likes plum wine and dislikes wet boots.";
  return text;
}

std::string system_of(const std::string& name) {
  return R"({"role":"system","content":")" + persona(name) + "\"}";
}

std::string prefix_body(const std::string& name, const std::string& fields = "") {
  return R"({"model":"demo-model","messages":[)" + system_of(name) + "]" + fields + "}";
}

std::string chat_body(const std::string& name, const std::string& question,
                      const std::string& fields = R"(,"max_tokens":2)") {
  return R"({"model":"demo-model","temperature":0,"messages":[)" + system_of(name) +
         R"(,{"role":"user","content":")" + question + "\"}]" + fields + "}";
}

bj::object object_of(const Reply& reply, int status = 200) {
  EXPECT_EQ(reply.status, status) << reply.body;
  auto value = parse_json(reply.body);
  if (!value.ok() || !value->is_object()) ADD_FAILURE() << reply.body;
  return value.ok() && value->is_object() ? value->as_object() : bj::object();
}

std::string text_at(const bj::object& object, const char* key) {
  const bj::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

int64_t number_at(const bj::object& object, const char* key) {
  const bj::value* value = object.if_contains(key);
  return value != nullptr && value->is_int64() ? value->as_int64() : -1;
}

struct Prefixes : ::testing::Test {
  explicit Prefixes(const WorkerSettings& settings = small_settings()) : worker(settings) {}

  bj::object post(const std::string& body, int status = 200) {
    return object_of(ask(worker.port(), "POST", "/v1/prefixes", body), status);
  }
  int64_t chat_cached(const std::string& name, const std::string& question) {
    const bj::object answer =
        object_of(ask(worker.port(), "POST", "/v1/chat/completions", chat_body(name, question)));
    if (!answer.contains("usage")) return -1;
    const bj::object& usage = answer.at("usage").as_object();
    return number_at(usage.at("prompt_tokens_details").as_object(), "cached_tokens");
  }
  // Sends one-shot prompts, several times the KV memory.
  void flood() {
    for (int i = 0; i < 14; ++i) chat_cached("passer-by " + std::to_string(100 + i), "Hello!");
  }
  bj::object list() { return object_of(ask(worker.port(), "GET", "/v1/prefixes")); }
  std::string error_of(const bj::object& answer, const char* key) {
    return answer.contains("error") ? text_at(answer.at("error").as_object(), key) : "";
  }

  worker_fixture::Worker worker;
};

TEST_F(Prefixes, FirstChatFindsExactlyTheComputedPrefix) {
  const bj::object made = post(prefix_body("Ruvo Tamek"));
  EXPECT_EQ(text_at(made, "object"), "prefix");
  EXPECT_EQ(number_at(made, "cached_tokens"), 0);
  EXPECT_FALSE(made.at("pinned").as_bool());
  const int64_t tokens = number_at(made, "tokens");
  EXPECT_GT(tokens, 100);
  EXPECT_EQ(chat_cached("Ruvo Tamek", "Hello!"), tokens);
  // Asked for again, nothing is left to compute.
  const bj::object again = post(prefix_body("Ruvo Tamek"));
  EXPECT_EQ(text_at(again, "id"), text_at(made, "id"));
  EXPECT_EQ(number_at(again, "cached_tokens"), tokens - 1) << "the last token is always computed";
  const bj::object one = object_of(ask(worker.port(), "GET", "/v1/prefixes/" + text_at(made, "id")));
  EXPECT_EQ(number_at(one, "tokens"), tokens);
  EXPECT_EQ(list().at("data").as_array().size(), 1u);
}

TEST_F(Prefixes, PinSurvivesAFloodThatEvictsTheRest) {
  const int64_t pinned = number_at(post(prefix_body("Ruvo Tamek", R"(,"pin":true)")), "tokens");
  const int64_t other = number_at(post(prefix_body("Dazin Orel")), "tokens");
  flood();
  EXPECT_EQ(chat_cached("Ruvo Tamek", "Hello!"), pinned);
  EXPECT_LT(chat_cached("Dazin Orel", "Hello!"), other);
  flood();
  EXPECT_EQ(chat_cached("Ruvo Tamek", "And now?"), pinned);
  EXPECT_GE(number_at(list(), "pinned_tokens"), pinned);
}

TEST_F(Prefixes, DeletedPinIsEvictedNormally) {
  const bj::object made = post(prefix_body("Ruvo Tamek", R"(,"pin":true)"));
  const std::string path = "/v1/prefixes/" + text_at(made, "id");
  EXPECT_TRUE(object_of(ask(worker.port(), "DELETE", path)).at("deleted").as_bool());
  EXPECT_EQ(error_of(object_of(ask(worker.port(), "GET", path), 404), "code"), "prefix_not_found");
  object_of(ask(worker.port(), "DELETE", path), 404);
  EXPECT_EQ(number_at(list(), "pinned_tokens"), 0);
  flood();
  EXPECT_LT(chat_cached("Ruvo Tamek", "Hello!"), number_at(made, "tokens"));
}

TEST_F(Prefixes, PinExpiresAfterItsTtl) {
  const bj::object made = post(prefix_body("Ruvo Tamek", R"(,"pin":true,"ttl_s":1)"));
  EXPECT_EQ(number_at(made, "ttl_s"), 1);
  EXPECT_EQ(number_at(made, "expires_at"), number_at(made, "created_at") + 1);
  std::this_thread::sleep_for(1500ms);
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  // No request touches it meanwhile: the gauge is the engine's own.
  const auto pinned_blocks = [&] {
    const std::string text = ask(worker.port(), "GET", "/metrics").body;
    const size_t at = text.find("\ntroupe_kv_blocks_pinned{");
    return std::atof(text.c_str() + text.find("} ", at) + 2);
  };
  while (pinned_blocks() > 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(pinned_blocks(), 0);
  object_of(ask(worker.port(), "GET", "/v1/prefixes/" + text_at(made, "id")), 404);
}

TEST_F(Prefixes, PinsAreLimitedToAQuarterOfTheMemory) {
  post(prefix_body("Ruvo Tamek", R"(,"pin":true)"));
  const int64_t used = number_at(list(), "pinned_tokens");
  EXPECT_EQ(number_at(list(), "max_pinned_tokens"), 256);
  const bj::object refused = post(prefix_body("Dazin Orel", R"(,"pin":true)"), 409);
  EXPECT_EQ(error_of(refused, "code"), "pin_budget_exceeded");
  EXPECT_EQ(error_of(refused, "param"), "pin");
  const std::string message = error_of(refused, "message");
  EXPECT_NE(message.find("256"), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(used)), std::string::npos) << message;
  post(prefix_body("Dazin Orel"));
}

TEST_F(Prefixes, NameTheWrongFieldOfABody) {
  const std::pair<std::string, std::string> wrong[] = {
      {R"({"model":"demo-model","messages":[{"role":"system","content":"x"}],"pin":1})", "pin"},
      {R"({"model":"demo-model","messages":[{"role":"system","content":"x"}],"ttl_s":0})", "ttl_s"},
      {R"({"model":"demo-model","messages":[{"role":"system","content":"x"}],"ttl_s":1.5})", "ttl_s"},
      {R"({"model":"demo-model","messages":[{"role":"system","content":"x"}],"ttl_s":1e12})", "ttl_s"},
      {R"({"model":"demo-model","messages":[{"role":"system","content":7}]})", "messages[0].content"},
      {R"({"model":"demo-model"})", "messages"},
      {R"({"model":"demo-model","messages":[]})", "messages"},
      {R"({"model":"demo-model","prompt":""})", "prompt"},
      {R"({"model":"demo-model","prompt":"a","messages":[]})", "prompt"},
      {R"({"messages":[{"role":"system","content":"x"}]})", "model"},
      {R"({"model":"demo-model","prompt":[1,999999]})", "prompt[1]"},
      {R"({"model":"demo-model","prompt":[1]})", "prompt"},
  };
  for (const auto& [body, param] : wrong) {
    EXPECT_EQ(error_of(post(body, 400), "param"), param) << body;
  }
  EXPECT_EQ(error_of(post(R"({"model":"other","prompt":"x"})", 404), "code"), "model_not_found");
  EXPECT_EQ(ask(worker.port(), "DELETE", "/v1/prefixes").status, 405);
  EXPECT_EQ(ask(worker.port(), "DELETE", "/v1/prefixes").header("allow"), "GET, HEAD, POST");
  EXPECT_EQ(ask(worker.port(), "GET", "/v1/prefixes/").status, 404);
  object_of(ask(worker.port(), "GET", "/v1/prefixes/prefix-nonsense"), 404);
  const std::string long_text = R"({"model":"demo-model","prompt":[)" + [] {
    std::string ids = "5";
    for (int i = 0; i < 600; ++i) ids += ",5";
    return ids;
  }() + "]}";
  EXPECT_EQ(error_of(post(long_text, 400), "code"), "context_length_exceeded");
  EXPECT_TRUE(list().at("data").as_array().empty());
}

TEST_F(Prefixes, AcceptPlainPrompts) {
  const std::string text = persona("Ruvo Tamek");
  const int64_t tokens =
      number_at(post(R"({"model":"demo-model","pin":true,"prompt":")" + text + "\"}"), "tokens");
  const bj::object answer =
      object_of(ask(worker.port(), "POST", "/v1/completions",
                    R"({"model":"demo-model","max_tokens":2,"prompt":")" + text + R"( He laughs."})"));
  EXPECT_EQ(
      number_at(answer.at("usage").as_object().at("prompt_tokens_details").as_object(), "cached_tokens"),
      tokens);
}

TEST_F(Prefixes, OtherSaltOrToolsMakeAnotherPrefix) {
  const std::string plain = text_at(post(prefix_body("Ruvo Tamek")), "id");
  const std::string salted = text_at(post(prefix_body("Ruvo Tamek", R"(,"cache_salt":"tenant")")), "id");
  EXPECT_NE(plain, salted);
  EXPECT_EQ(number_at(post(prefix_body("Ruvo Tamek", R"(,"cache_salt":"tenant 2")")), "cached_tokens"), 0);
}

TEST_F(Prefixes, ResidencySubscriberReceivesThePin) {
  Connection connection(worker.port());
  connection.send(request_bytes("GET", "/v1/residency", ""));
  const std::string set(32, 'a');
  const auto reply = ask(worker.port(), "POST", "/v1/prefixes", prefix_body("Ruvo Tamek", R"(,"pin":true)"),
                         {"x-troupe-set: " + set, "x-troupe-prefix-messages: 1"});
  const bj::object made = object_of(reply);
  EXPECT_EQ(text_at(made, "set"), set);
  EXPECT_TRUE(connection.read_until(R"("pinned":true)")) << connection.buffer();
  ask(worker.port(), "DELETE", "/v1/prefixes/" + text_at(made, "id"));
  const std::string whole = std::to_string(number_at(made, "tokens") / 16 * 16);
  EXPECT_TRUE(connection.read_until(R"("tokens":)" + whole + R"(,"pinned":false)")) << connection.buffer();
}

// The owners of the only prefix, as a gateway is shown them.
std::string owners_of(const bj::object& list) {
  std::string owners;
  for (const bj::value& owner : list.at("data").as_array().at(0).as_object().at("owners").as_array())
    owners += (owners.empty() ? "" : " ") + std::string(owner.as_string());
  return owners;
}

TEST_F(Prefixes, ArePinnedForTheirOwnersUntilTheLastHasRemovedThem) {
  const auto ask_as = [&](const std::string& owner, const char* method, const std::string& path) {
    return ask(worker.port(), method, path, "", {"x-troupe-owner: " + owner});
  };
  const std::string body = prefix_body("Ruvo Tamek", R"(,"pin":true,"ttl_s":600)");
  std::string path;
  for (const std::string owner : {"aa01", "bb02", "no name!", "aa01"}) {
    const bj::object made =
        object_of(ask(worker.port(), "POST", "/v1/prefixes", body, {"x-troupe-owner: " + owner}));
    EXPECT_FALSE(made.contains("owners"));
    path = "/v1/prefixes/" + text_at(made, "id");
  }
  EXPECT_FALSE(list().at("data").as_array().at(0).as_object().contains("owners"));
  const auto listed = [&] {
    return object_of(ask(worker.port(), "GET", "/v1/prefixes", "", {"x-troupe-owners: 1"}));
  };
  EXPECT_EQ(owners_of(listed()), "aa01 bb02");
  const int64_t left_s = number_at(listed().at("data").as_array().at(0).as_object(), "left_s");
  EXPECT_TRUE(left_s > 500 && left_s <= 600) << left_s;
  for (const char* method : {"GET", "DELETE"})
    EXPECT_EQ(error_of(object_of(ask_as("cc03", method, path), 404), "code"), "prefix_not_found");
  EXPECT_TRUE(object_of(ask_as("aa01", "DELETE", path)).at("deleted").as_bool());
  EXPECT_EQ(owners_of(listed()), "bb02");
  object_of(ask_as("aa01", "GET", path), 404);
  EXPECT_GT(number_at(list(), "pinned_tokens"), 0);
  EXPECT_TRUE(object_of(ask_as("bb02", "DELETE", path)).at("deleted").as_bool());
  EXPECT_EQ(number_at(list(), "pinned_tokens"), 0);
  // Pinned again it is only its new owner's, and without a name it is removed at once, for all.
  object_of(ask(worker.port(), "POST", "/v1/prefixes", body, {"x-troupe-owner: cc03"}));
  EXPECT_EQ(owners_of(listed()), "cc03");
  EXPECT_TRUE(object_of(ask(worker.port(), "DELETE", path)).at("deleted").as_bool());
  EXPECT_EQ(number_at(list(), "pinned_tokens"), 0);
}

struct OwnedPrefixes : Prefixes {
  void make(const std::string& owner, const std::string& fields = "") {
    const std::string body = prefix_body("Ruvo Tamek", fields);
    id = text_at(object_of(ask(worker.port(), "POST", "/v1/prefixes", body, {"x-troupe-owner: " + owner})),
                 "id");
  }
  int status(const std::string& owner, const char* method) {
    const std::string path = "/v1/prefixes/" + id;
    if (owner.empty()) return ask(worker.port(), method, path).status;
    return ask(worker.port(), method, path, "", {"x-troupe-owner: " + owner}).status;
  }
  std::string id;
};

TEST_F(OwnedPrefixes, UnpinnedOnesAreTheirOwnersAlone) {
  make("aa01");
  for (const char* method : {"GET", "DELETE"}) EXPECT_EQ(status("bb02", method), 404) << method;
  EXPECT_EQ(status("aa01", "GET"), 200);
  EXPECT_EQ(status("", "GET"), 200) << "an operator sees all";
  make("bb02");
  EXPECT_EQ(status("aa01", "DELETE"), 200);
  EXPECT_EQ(status("aa01", "GET"), 404);
  EXPECT_EQ(status("bb02", "GET"), 200) << "it stays for the other";
  EXPECT_EQ(status("bb02", "DELETE"), 200);
  EXPECT_EQ(status("", "GET"), 404);
  post(prefix_body("Ruvo Tamek"));
  for (const char* method : {"GET", "DELETE"}) EXPECT_EQ(status("aa01", method), 404) << "an operator's";
  EXPECT_EQ(status("", "DELETE"), 200);
}

TEST_F(OwnedPrefixes, PinEndsWithItsOwnerThoughOthersHadItComputed) {
  make("bb02");
  make("aa01", R"(,"pin":true,"ttl_s":600)");
  EXPECT_EQ(owners_of(object_of(ask(worker.port(), "GET", "/v1/prefixes", "", {"x-troupe-owners: 1"}))),
            "aa01");
  EXPECT_EQ(status("bb02", "GET"), 200);
  EXPECT_EQ(status("aa01", "DELETE"), 200);
  EXPECT_EQ(number_at(list(), "pinned_tokens"), 0);
  EXPECT_EQ(status("aa01", "GET"), 404);
  EXPECT_TRUE(list().at("data").as_array().at(0).as_object().at("expires_at").is_null());
  post(prefix_body("Ruvo Tamek", R"(,"pin":true)"));  // an operator's
  EXPECT_EQ(status("bb02", "DELETE"), 200);
  EXPECT_GT(number_at(list(), "pinned_tokens"), 0);
}

TEST_F(Prefixes, DrainDoesNotWaitForExpiry) {
  const bj::object made = post(prefix_body("Ruvo Tamek", R"(,"pin":true,"ttl_s":3600)"));
  Connection late(worker.port());
  late.send("DELETE /v1/prefixes/" + text_at(made, "id") + " HTTP/1.1\r\nHost: localhost\r\n");
  auto drained = worker.start_drain(0s);
  std::this_thread::sleep_for(300ms);
  late.send("\r\n");
  ASSERT_EQ(drained.wait_for(30s), std::future_status::ready);
  EXPECT_TRUE(drained.get());
}

// A worker whose KV memory fails at a block of a pinned prefix.
struct SpoiltPin : ::testing::Test {
  void SetUp() override {
    const bj::object made = pin();
    path = "/v1/prefixes/" + text_at(made, "id");
    EXPECT_TRUE(object_of(ask(server.port(), "GET", path)).at("pinned").as_bool());
    bad_block = of_prefix.load();
  }
  bj::object pin(int status = 200) {
    const std::string body = R"({"model":"fake","pin":true,"prompt":")" + persona("Ruvo Tamek") + "\"}";
    return object_of(ask(server.port(), "POST", "/v1/prefixes", body), status);
  }
  void expect_not_pinned() {
    object_of(ask(server.port(), "GET", path), 404);
    const bj::object list = object_of(ask(server.port(), "GET", "/v1/prefixes"));
    EXPECT_TRUE(list.at("data").as_array().empty());
    EXPECT_EQ(number_at(list, "pinned_tokens"), 0);
    EXPECT_TRUE(pin().at("pinned").as_bool()) << "computed anew";
    EXPECT_TRUE(object_of(ask(server.port(), "GET", path)).at("pinned").as_bool());
  }

  std::atomic<BlockId> of_prefix = -1, bad_block = -1;
  testing::HarnessServer server{testing::EngineHarness::Model{.before_step =
                                                                  [this](const Batch& batch) {
                                                                    of_prefix = batch.items[0].blocks[3];
                                                                    return absl::OkStatus();
                                                                  },
                                                              .bad_block = &bad_block}};
  std::string path;
};

TEST_F(SpoiltPin, IsNotPinnedAfterItsRefreshFailed) {
  const bj::object failed = pin(500);
  EXPECT_EQ(text_at(failed.at("error").as_object(), "code"), "numerical_error");
  expect_not_pinned();
}

TEST_F(SpoiltPin, IsNotPinnedAfterARequestToItFailed) {
  const std::string body =
      R"({"model":"fake","max_tokens":2,"prompt":")" + persona("Ruvo Tamek") + " Hello!\"}";
  object_of(ask(server.port(), "POST", "/v1/completions", body), 500);
  expect_not_pinned();
}

struct MuchPinned : Prefixes {
  static WorkerSettings settings() {
    WorkerSettings settings = small_settings();
    settings.runner.kv_cache_tokens = 512;
    settings.server.max_pinned_share = 1;
    return settings;
  }
  MuchPinned() : Prefixes(settings()) {}
};

TEST_F(MuchPinned, ImpossibleRequestIsRefusedAndOthersContinue) {
  post(prefix_body("Ruvo Tamek", R"(,"pin":true)"));
  post(prefix_body("Dazin Orel", R"(,"pin":true)"));
  const Reply refused =
      ask(worker.port(), "POST", "/v1/chat/completions", chat_body("Mira", "Hello!", R"(,"max_tokens":300)"));
  const std::string message = error_of(object_of(refused, 400), "message");
  EXPECT_NE(message.find("pinned"), std::string::npos) << message;
  // Without max_tokens the answer is as long as fits.
  const bj::object cut = object_of(ask(worker.port(), "POST", "/v1/completions",
                                       R"({"model":"demo-model","prompt":"Once","ignore_eos":true})"));
  EXPECT_EQ(text_at(cut.at("choices").as_array()[0].as_object(), "finish_reason"), "length");
  EXPECT_LT(number_at(cut.at("usage").as_object(), "completion_tokens"),
            512 - number_at(list(), "pinned_tokens") + 2);
  EXPECT_GT(chat_cached("Ruvo Tamek", "Hello!"), 100);
  // A third pin would fit the budget but leave hardly any memory.
  EXPECT_EQ(error_of(post(prefix_body("Mira Solen, the old one of the two", R"(,"pin":true)"), 409), "code"),
            "pin_budget_exceeded");
}

}  // namespace troupe::prefixes_test
