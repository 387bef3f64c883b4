// /tokenize and /detokenize at servers of other kinds.

#include "gateway/proxy/token_forms.h"

#include <gmock/gmock.h>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

using ::testing::HasSubstr;

TEST(TokenForms, AskInAllForms) {
  const TokenForms text("/tokenize", R"({"model":"m","prompt":"a \"b\""})");
  EXPECT_EQ(text.request_body(),
            R"({"model":"m","prompt":"a \"b\"","content":"a \"b\"","inputs":"a \"b\"","add_special":true})");
  EXPECT_THAT(TokenForms("/tokenize", R"({"prompt":"a","add_special_tokens":false})").request_body(),
              HasSubstr("\"add_special\":false"));
  EXPECT_EQ(TokenForms("/tokenize", R"({"content":"a"})").request_body(),
            R"({"content":"a","prompt":"a","inputs":"a","add_special_tokens":false})");
  EXPECT_EQ(TokenForms("/tokenize", R"({"model":"undefined","prompt":null,"content":"a"})").request_body(),
            R"({"content":"a","prompt":"a","inputs":"a","add_special_tokens":false})");
  EXPECT_THAT(TokenForms("/tokenize", R"({"content":"a","add_special":true})").request_body(),
              HasSubstr("\"add_special_tokens\":true"));
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}]})";
  EXPECT_EQ(TokenForms("/tokenize", chat).request_body(), chat);
  EXPECT_EQ(TokenForms("/detokenize", R"({"tokens":[1]})").request_body(), R"({"tokens":[1]})");
}

TEST(TokenForms, AnswerIsVllmsOrNone) {
  const TokenForms text("/tokenize", R"({"prompt":"a"})"), nothing("/tokenize", R"({"prompt":""})");
  const std::string vllm = R"({"count":2,"max_model_len":9,"tokens":[5,6],"token_strs":null})";
  EXPECT_EQ(text.answer(vllm, 0), vllm);
  EXPECT_THAT(*text.answer(R"({"tokens":[5,6]})", 4096), HasSubstr("\"count\":2"));
  EXPECT_THAT(*text.answer(R"({"tokens":[{"id":5,"piece":"a"}]})", 4096), HasSubstr("[5]"));
  EXPECT_THAT(*text.answer(R"([{"id":5,"text":"a","start":0,"stop":1}])", 4096),
              HasSubstr("\"max_model_len\":4096"));
  for (const char* bad :
       {R"({"tokens":[]})", R"({"count":0,"tokens":[]})", "{}", "[]", "", "no json", R"({"tokens":"5"})",
        R"({"tokens":[-1]})", R"({"tokens":["a"]})", R"({"tokens":[1.5]})"})
    EXPECT_FALSE(text.answer(bad, 0)) << bad;
  EXPECT_TRUE(nothing.answer(R"({"tokens":[]})", 0));
}

TEST(TokenForms, TextBackIsVllmsOrNone) {
  const TokenForms back("/detokenize", R"({"tokens":[1]})");
  EXPECT_EQ(*back.answer(R"({"prompt":"a"})", 0), R"({"prompt":"a"})");
  EXPECT_EQ(*back.answer(R"({"content":"a"})", 0), R"({"prompt":"a"})");
  EXPECT_FALSE(back.answer(R"({"text":"a"})", 0));
  EXPECT_FALSE(back.answer(R"({"content":5})", 0));
}

StubAnswer answer_json(const std::string& body);
Task<void> respond_json(std::string body, Exchange& exchange) {
  HeaderList headers;
  headers.emplace_back("content-type", "application/json");
  co_await exchange.respond(200, headers, std::move(body));
}
StubAnswer answer_json(const std::string& body) {
  return [body](StubWorker&, Exchange& exchange) { return respond_json(body, exchange); };
}

class TokensElsewhere : public ::testing::Test {
 protected:
  Answer tokenize(const TestGateway& gateway) const {
    RawPeer peer = gateway.connect();
    peer.send(http_post("/tokenize", R"({"model":"demo","prompt":"x"})"));
    return read_answer(peer);
  }
  Loop loop_;
  StubWorker a_{loop_, answer_json(R"({"tokens":[]})")}, b_{loop_, answer_json(R"({"tokens":[7,8]})")};
};

TEST_F(TokensElsewhere, NoEmptyListForAText) {
  TestGateway gateway(loop_, {a_.endpoint()});
  const Answer answer = tokenize(gateway);
  EXPECT_EQ(answer.status, 501) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("not_supported"));
  EXPECT_THAT(gateway.admin("/admin/workers").body, HasSubstr("\"failing\":false"));
}

TEST_F(TokensElsewhere, TheNextWorkerAnswers) {
  TestGateway gateway(loop_, {a_.endpoint(), b_.endpoint()});
  for (int i = 0; i < 6; ++i) {
    const Answer answer = tokenize(gateway);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("[7,8]"));
  }
}

TEST_F(TokensElsewhere, AMissingPathIsSaid) {
  for (const int status : {404, 405, 501}) {
    loop_.call([&] { a_.answer = answer_status(status); });
    TestGateway gateway(loop_, {a_.endpoint()});
    const Answer answer = tokenize(gateway);
    EXPECT_EQ(answer.status, 501) << status;
    EXPECT_THAT(answer.body, HasSubstr("answers this POST /tokenize"));
  }
}

}  // namespace
}  // namespace troupe::gateway_test
