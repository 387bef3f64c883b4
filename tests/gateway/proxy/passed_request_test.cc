// Requests that are passed on as they come, to workers of other kinds: their paths, forms and models.

#include "gateway/proxy/passed_request.h"

#include <gmock/gmock.h>

#include "common/api/passed_paths.h"
#include "common/dialects/routes.h"
#include "gateway/proxy/form_field.h"
#include "tests/cpu_time.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::passed_requests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string form(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string body;
  for (const auto& [name, value] : fields)
    body += "--xYz\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n";
  return body + "--xYz--\r\n";
}

TEST(FormBoundary, IsTheContentTypes) {
  EXPECT_EQ(*form_boundary("multipart/form-data; boundary=xYz"), "xYz");
  EXPECT_EQ(*form_boundary("Multipart/Form-Data; charset=utf-8; Boundary=\"a b:c\""), "a b:c");
  EXPECT_EQ(*form_boundary("multipart/form-data; x=\"; boundary=a\"; boundary=b"), "b");
  EXPECT_EQ(*form_boundary("application/json"), "");
  for (const char* parameters : {"", "; xboundary=a", "; boundary=", "; boundary=a; boundary=b",
                                 "; boundary=\"a", "; boundary*=utf-8''a", "; boundary"})
    EXPECT_FALSE(form_boundary("multipart/form-data" + std::string(parameters)).ok()) << parameters;
  EXPECT_FALSE(form_boundary("multipart/form-data; boundary=" + std::string(71, 'a')).ok());
}

TEST(FormField, IsFoundAmongFiles) {
  const std::string body =
      form({{"file", std::string("\0--xY\r\n--x", 10)}, {"model", "whisper"}, {"n", "1"}});
  EXPECT_EQ(form_field(body, "xYz", "model").value(), "whisper");
  EXPECT_EQ(form_field(body, "xYz", "n").value(), "1");
  EXPECT_EQ(form_field(body, "xYz", "missing").value(), std::nullopt);
  EXPECT_EQ(form_field(form({{"model", ""}}), "xYz", "model").value(), "");
  EXPECT_EQ(form_field(form({}), "xYz", "model").value(), std::nullopt);
  EXPECT_FALSE(form_field(body, "other", "model").ok());
  EXPECT_FALSE(form_field("", "xYz", "model").ok());
  for (size_t cut = 0; cut + 2 < body.size(); ++cut)  // (the last two are a line break, which may be missing)
    EXPECT_FALSE(form_field(body.substr(0, cut), "xYz", "model").ok()) << cut;
}

// A server could find another model in each of these than a gateway that takes the first.
TEST(FormField, IsRefusedWhereAServerMayReadTheFormInAnotherWay) {
  const std::string part = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nA\r\n";
  EXPECT_EQ(form_field(part + "--b--", "b", "model").value(), "A");
  const auto head = [](const std::string& lines) { return "--b\r\n" + lines + "\r\n\r\nB\r\n"; };
  for (const std::string& other : {
           part,
           head("Content-Disposition: form-data; name=model; name=\"model\""),
           head("Content-Disposition: form-data; name*=utf-8''model"),
           head("Content-Disposition: form-data; name=\"model"),
           head("Content-Disposition: form-data;\r\n name=model"),
           head("Content-Disposition: form-data; name=x\nContent-Disposition: form-data; name=model"),
           head("Content-Disposition: form-data; name=x\r\nContent-Disposition: form-data; name=model"),
           head("X-Other: form-data"),
           std::string("--b \r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nB\r\n"),
           std::string("--bb\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nB\r\n"),
           head("Content-Disposition: form-data; name=x y; name=\"model\""),
           std::string("--b\r\nContent-Disposition: form-data; name=f\r\n\r\nx\n--b\r\n"
                       "Content-Disposition: form-data; name=model\r\n\r\nB\r\n"),
           std::string("--b--\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nB\r\n"),
       })
    EXPECT_FALSE(form_field(part + other + "--b--\r\n", "b", "model").ok()) << other;
  const std::string file =
      "--b\r\nContent-Disposition: form-data; filename=\" name=model;\"; name=\"file\"\r\n\r\nf\r\n";
  EXPECT_EQ(form_field(file + part + "--b--\r\n", "b", "model").value(), "A");
  std::string many;
  for (int i = 0; i < 256; ++i) many += "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n";
  EXPECT_EQ(form_field(many + "--b--", "b", "model").value(), std::nullopt);
  EXPECT_FALSE(form_field(many + part + "--b--", "b", "model").ok());
}

// (Each of 255 parts was once looked through to the body's end for a head.)
TEST(FormField, IsLinear) {
  std::string body = "--b";
  for (int i = 0; i < 254; ++i) body += "\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--b";
  const std::string rest = "\r\n" + std::string(4 << 20, '\r') + "\r\n--b--";
  const auto cost = [](const std::string& form) {
    const double before = cpu_seconds();
    EXPECT_FALSE(form_field(form, "b", "model").ok());
    return cpu_seconds() - before;
  };
  const double alone = cost("--b" + rest);
  EXPECT_LT(cost(body + rest), 4 * alone + 0.02);
}

TEST(WithModel, RewritesJsonAndForms) {
  EXPECT_EQ(with_model(R"({"model":"a","input":[1]})", "application/json", "b"),
            R"({"input":[1],"model":"b"})");
  const std::string body = form({{"file", "x"}, {"model", "a"}, {"n", "1"}});
  EXPECT_EQ(with_model(body, "multipart/form-data; boundary=xYz", "org/long-name"),
            form({{"file", "x"}, {"model", "org/long-name"}, {"n", "1"}}));
  const std::string nameless = form({{"file", "x"}});
  EXPECT_EQ(with_model(nameless, "multipart/form-data; boundary=xYz", "b"), nameless);
}

// An answer in several forms that names its path.
std::string answer_at(const std::string& path) {
  return R"({"at":")" + path + R"(","output":[],"content":[],"stop_reason":"end_turn"})";
}

Task<void> answer_path(StubWorker&, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, answer_at(exchange.request().path));
}

class PassedRequests : public ::testing::Test {
 protected:
  Answer post(const TestGateway& gateway, const std::string& path, const std::string& body,
              const std::string& headers = "") const {
    RawPeer peer = gateway.connect();
    peer.send("POST " + path + " HTTP/1.1\r\nhost: t\r\ncontent-length: " + std::to_string(body.size()) +
              "\r\n" + (headers.empty() ? "content-type: application/json\r\n" : headers) + "\r\n" + body);
    return read_answer(peer);
  }
  size_t seen(StubWorker& stub) {
    return loop_.call([&] { return stub.seen.size(); });
  }

  Loop loop_;
  StubWorker foreign_{loop_, answer_path}, ours_{loop_, answer_path};
};

TEST_F(PassedRequests, GoToWorkersOfOtherKindsAlone) {
  loop_.call([&] {
    ours_.load_status = 200;
    ours_.load.epoch = "e";
    ours_.load.ready = true;
  });
  TestGateway gateway(loop_, {ours_.endpoint(), foreign_.endpoint()});
  ASSERT_TRUE(loop_.eventually([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
  int passed = 0;
  for (const std::string_view path : kPassedPaths) {
    const std::string name(path);
    if (find_dialect("POST", path) != nullptr || path == "/v1/embeddings") continue;  // ours answer it, too
    const Answer answer = post(gateway, name, R"({"model":"demo","input":"x"})");
    EXPECT_EQ(answer.status, 200) << name << answer.body;
    EXPECT_EQ(answer.body, answer_at(name));
    EXPECT_EQ(answer.route("node"), foreign_.id());
    ++passed;
  }
  EXPECT_EQ(seen(ours_), 0u);
  EXPECT_EQ(passed, 12);
  EXPECT_EQ(gateway.metric("troupe_gateway_requests_total{code=\"200\"}"), passed);
}

TEST_F(PassedRequests, AreNotFoundWhereOnlyOursServe) {
  loop_.call([&] {
    ours_.load_status = 200;
    ours_.load.epoch = "e";
    ours_.load.ready = true;
  });
  TestGateway gateway(loop_, {ours_.endpoint()});
  ASSERT_TRUE(loop_.eventually([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
  const Answer answer = post(gateway, "/v1/rerank", R"({"model":"demo","input":"x"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(answer.body, HasSubstr("answers POST /v1/rerank"));
  EXPECT_EQ(post(gateway, "/v1/rerank", R"({"model":"other"})").status, 404);
  EXPECT_EQ(seen(ours_), 0u);
}

TEST_F(PassedRequests, OfEmbeddingsAreOursToAnswerToo) {
  loop_.call([&] {
    ours_.load_status = 200;
    ours_.load.epoch = "e";
    ours_.load.ready = true;
  });
  TestGateway gateway(loop_, {ours_.endpoint()});
  ASSERT_TRUE(loop_.eventually([&] { return gateway.gateway->fleet().is_troupe_worker(0); }));
  const std::string body = R"({"model":"demo","input":["x",[1,2]]})";
  const Answer answer = post(gateway, "/v1/embeddings", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.route("node"), ours_.id());
  EXPECT_EQ(loop_.call([&] { return ours_.seen.at(0).body; }), body);
  EXPECT_EQ(post(gateway, "/v1/embeddings", R"({"model":"other","input":"x"})").status, 404);
}

// A text's beginning is cached where it was last computed.
TEST_F(PassedRequests, OfEmbeddingsGoWhereTheirTextsBeginningIs) {
  const auto key_of = [](const std::string& body) {
    HttpRequest request;
    request.path = "/v1/embeddings";
    request.body = body;
    ProxyOptions options;
    ApiParser api(options.api);
    return parse_passed(request, {options, api, ""})->key;
  };
  const std::string beginning(3000, 'x');
  const auto first_of = [&](const std::string& input) {
    return key_of(R"({"model":"demo","input":)" + input + "}").anchors.at(0).hash;
  };
  const Hash128 one = first_of("\"" + beginning + "a\"");
  EXPECT_EQ(one, first_of("[\"" + beginning + "b\",\"c\"]"));
  EXPECT_NE(one, first_of("\"y" + beginning + "\""));
  EXPECT_FALSE(key_of(R"({"model":"demo","input":[[1,2],[3]]})").others_only);
}

TEST_F(PassedRequests, NameTheModelInAFormOrNotAtAll) {
  TestGateway gateway(loop_, {foreign_.endpoint()});
  const std::string type = "content-type: multipart/form-data; boundary=xYz\r\n";
  EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", form({{"file", "x"}, {"model", "demo"}}), type).status,
            200);
  EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", form({{"file", "x"}}), type).status, 200);
  EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", form({{"model", "none"}}), type).status, 404);
  EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", "no form", type).status, 400);
  EXPECT_EQ(post(gateway, "/v1/responses", R"({"input":"x"})").status, 200);
  EXPECT_EQ(post(gateway, "/v1/responses", R"({"model":5})").status, 400);
  EXPECT_EQ(post(gateway, "/v1/responses", R"({"model":"demo","MODEL":"other"})").status, 400);
  EXPECT_EQ(post(gateway, "/v1/audio/transcriptions", form({{"model", "demo"}}),
                 type + "content-type: multipart/form-data; boundary=other\r\n")
                .status,
            400);
  EXPECT_EQ(post(gateway, "/v1/responses", "[1]").status, 400);
  EXPECT_EQ(gateway.get("/v1/responses").status, 405);
}

// Without tenants all that a worker keeps is all clients'.
TEST_F(PassedRequests, NameAnEarlierAnswerWhereThereAreNoTenants) {
  TestGateway gateway(loop_, {foreign_.endpoint()});
  const std::string body =
      R"({"model":"demo","input":[{"type":"item_reference","id":"m"}],"previous_response_id":"r","conversation":"c"})";
  EXPECT_EQ(post(gateway, "/v1/responses", body).status, 200);
  EXPECT_EQ(loop_.call([&] { return foreign_.seen.at(0).body; }), body);
}

// A server may not know the path, which is no illness of it.
TEST_F(PassedRequests, UnknownThereIsTheNextOnesAndBlamesNobody) {
  TestGateway gateway(loop_, {ours_.endpoint(), foreign_.endpoint()});
  for (const int status : {404, 405, 501}) {
    loop_.call([&] {
      ours_.answer = answer_status(status);  // of another kind, too
      ours_.seen.clear();
    });
    for (int i = 0; i < 12; ++i) {
      const std::string user = std::to_string(100 * status + i);
      EXPECT_EQ(post(gateway, "/v1/rerank", R"({"model":"demo","user":")" + user + "\"}").status, 200);
    }
    EXPECT_GT(seen(ours_), 0u) << status;
    EXPECT_THAT(gateway.admin("/admin/workers").body, Not(HasSubstr("\"failing\":true"))) << status;
  }
}

TEST_F(PassedRequests, StreamAsTheyCome) {
  loop_.call([&] { foreign_.answer = answer_stream; });
  TestGateway gateway(loop_, {foreign_.endpoint()});
  const Answer answer = post(gateway, "/v1/messages", R"({"model":"demo","stream":true,"messages":[]})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr("data: {\"n\":2}"));
}

Task<void> say(Exchange& exchange, std::string type, std::string body, bool cuts) {
  HeaderList headers;
  headers.emplace_back("content-type", type);
  co_await exchange.start(200, headers);
  co_await exchange.write(body);
  if (cuts) co_return exchange.cut();
  co_await exchange.finish();
}

StubAnswer says(const std::string& type, const std::string& body, bool cuts = false) {
  return [=](StubWorker&, Exchange& exchange) { return say(exchange, type, body, cuts); };
}

const std::string kEvents = "text/event-stream", kJson = "application/json";

std::string event(const std::string& json) {
  const size_t begin = json.find("\":\"") + 3;
  return "event: " + json.substr(begin, json.find('"', begin) - begin) + "\ndata: " + json + "\n\n";
}

// A streaming API that is passed on: an answer of it in parts, and whole.
struct Api {
  std::string path, opening, text, end, whole;
};

std::vector<Api> apis() {
  return {{"/v1/messages",
           event(R"({"type":"message_start","message":{"content":[],"stop_reason":null}})") +
               event(R"({"type":"ping"})") +
               event(R"({"type":"content_block_start","content_block":{"type":"text","text":""}})"),
           event(R"({"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}})"),
           event(R"({"type":"message_stop"})"), R"({"content":[{"type":"text","text":"a"}]})"},
          {"/v1/responses",
           event(R"({"type":"response.created","response":{"error":null}})") +
               event(R"({"type":"response.output_item.added","item":{"type":"message"}})"),
           event(R"({"type":"response.output_text.delta","delta":"a"})"),
           event(R"({"type":"response.completed","response":{"error":null}})"),
           R"({"object":"response","output":[]})"}};
}

const std::string kOverloaded =
    event(R"({"type":"error","error":{"type":"overloaded_error","message":"boom"}})");
const std::string kFailed = event(R"({"type":"response.failed","response":{"error":{"message":"boom"}}})");

TEST_F(PassedRequests, AnswerThatIsNoneIsItsWorkersFault) {
  for (const Api& api : apis()) {
    struct Fault {
      std::string name;
      StubAnswer answer;
      bool stream;
    };
    const bool messages = api.path == "/v1/messages";
    for (const Fault& fault : std::vector<Fault>{
             {"nothing", says(kEvents, ""), true},
             {"an opening", says(kEvents, api.opening), true},
             {"a cut opening", says(kEvents, api.opening, true), true},
             {"an opening and an error", says(kEvents, api.opening + kOverloaded), true},
             {"an opening and a failure", says(kEvents, api.opening + kFailed), true},
             {"an opening and the end",
              says(kEvents, api.opening + (messages ? api.end : "data: [DONE]\n\n")), true},
             {"no stream", says(kJson, api.whole), true},
             {"{}", says(kJson, "{}"), false},
             {"an error", says(kJson, R"({"type":"error","error":{"message":"boom"}})"), false},
             {"a web page", says("text/html", "<html>boom</html>"), false}}) {
      const std::string good = fault.stream ? api.opening + api.text + api.end : api.whole;
      loop_.call([&] {
        ours_.answer = fault.answer;  // of another kind, too
        foreign_.answer = says(fault.stream ? kEvents : kJson, good);
        ours_.seen.clear();
      });
      TestGateway gateway(loop_, {ours_.endpoint(), foreign_.endpoint()});
      for (int i = 0; i < 30; ++i) {
        const Answer answer = post(gateway, api.path,
                                   R"({"model":"demo","user":")" + std::to_string(i) + R"(","stream":)" +
                                       (fault.stream ? "true}" : "false}"));
        ASSERT_EQ(answer.status, 200) << api.path << ", " << fault.name << answer.body;
        ASSERT_EQ(answer.body, good) << api.path << ", " << fault.name;
      }
      EXPECT_GT(seen(ours_), 0u) << api.path << ", " << fault.name << ": it was never asked";
      // An overloaded one keeps its share, a half by chance of names; none attracts more by failing fast.
      EXPECT_LE(seen(ours_), 22u) << api.path << ", " << fault.name;
    }
  }
}

TEST_F(PassedRequests, StreamThatIsCutAfterContentEndsWithAnErrorEvent) {
  for (const Api& api : apis()) {
    loop_.call([&] { foreign_.answer = says(kEvents, api.opening + api.text); });
    TestGateway gateway(loop_, {foreign_.endpoint()});
    const std::string body = R"({"model":"demo","stream":true})";
    const Answer cut = post(gateway, api.path, body);
    EXPECT_TRUE(cut.body.starts_with(api.opening + api.text)) << cut.body;
    EXPECT_THAT(cut.body.substr(api.opening.size() + api.text.size()), HasSubstr("\"error\"")) << api.path;
    loop_.call([&] { foreign_.answer = says(kEvents, api.opening + api.text + kFailed); });
    EXPECT_EQ(post(gateway, api.path, body).body, api.opening + api.text + kFailed);
    EXPECT_EQ(gateway.metric("troupe_gateway_broken_answers_total"), 2);
  }
}

TEST_F(PassedRequests, ErrorInA200OfAnyFormIsItsWorkersFault) {
  loop_.call([&] { ours_.answer = says(kJson, R"({"object":"error","message":"boom"})"); });
  TestGateway gateway(loop_, {ours_.endpoint(), foreign_.endpoint()});
  for (int i = 0; i < 30; ++i) {
    const std::string body = R"({"model":"demo","user":")" + std::to_string(i) + "\"}";
    EXPECT_EQ(post(gateway, "/v1/embeddings", body).body, answer_at("/v1/embeddings"));
  }
  EXPECT_GT(seen(ours_), 0u);
  EXPECT_LE(seen(ours_), 16u);
}

}  // namespace
}  // namespace troupe::gateway_test::passed_requests
