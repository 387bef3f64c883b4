// Traces: the accepted parts of a traceparent, the parent sent to the worker, and spans waiting for a
// collector. tests/e2e/test_otlp.py compares their form with OpenTelemetry's own messages.

#include <set>

#include "gateway/telemetry/span_exporter.h"
#include "gateway/telemetry/span_queue.h"
#include "gateway/telemetry/trace_context.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace trace_test {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kHeader[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadAndWrittenUnchanged) {
  const auto context = parse_traceparent(kHeader);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id(), kTrace);
  EXPECT_EQ(context->span, 0xb7ad6b7169203331u);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(context->header(), kHeader);
  EXPECT_FALSE(parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled());
}

TEST(TraceContext, LaterVersionIsReadAsVersion00) {
  for (const std::string tail : {"", "-", "-more-of-it"}) {
    const auto later = parse_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff" + tail);
    ASSERT_TRUE(later.has_value()) << tail;
    EXPECT_EQ(later->header(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03");
  }
}

TEST(TraceContext, MalformedHeaderIsIgnored) {
  for (const std::string wrong : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                                  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
                                  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
                                  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
                                  "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                                  "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                  "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                  "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
                                  "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                  "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                  "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
                                  " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(parse_traceparent(wrong).has_value()) << wrong;
  }
  const HeaderList twice{{"traceparent", kHeader}, {"traceparent", kHeader}};
  EXPECT_FALSE(trace_context_of(twice).has_value());
  EXPECT_FALSE(trace_context_of({}).has_value());
}

TEST(TraceIds, AreUniqueAndSampledByTheRatio) {
  TraceIds ids;
  std::set<std::string> seen;
  int sampled = 0;
  for (int i = 0; i < 4000; ++i) {
    const TraceContext trace = ids.new_trace(0.25);
    sampled += trace.sampled();
    EXPECT_TRUE(seen.insert(trace.trace_id()).second);
    EXPECT_TRUE(parse_traceparent(trace.header()).has_value());
  }
  EXPECT_GT(sampled, 800);  // 1,000 expected, deviation 27
  EXPECT_LT(sampled, 1200);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(ids.new_trace(1).sampled());
    EXPECT_FALSE(ids.new_trace(0).sampled());
  }
}

SpanText spans(size_t count, size_t bytes) {
  SpanText text;
  text.count = count;
  text.json = std::string(bytes, 'x');
  return text;
}

TEST(SpanQueue, FillsBatchesAndKeepsItsBound) {
  SpanQueue queue(1000, 300);
  EXPECT_EQ(queue.front(), nullptr);
  EXPECT_TRUE(queue.add(spans(2, 100)));
  EXPECT_TRUE(queue.add(spans(3, 100)));
  EXPECT_FALSE(queue.has_full_batch());
  EXPECT_TRUE(queue.add(spans(4, 200)));  // a batch of its own: the first would be larger than a batch may be
  EXPECT_TRUE(queue.has_full_batch());
  EXPECT_EQ(queue.spans(), 9u);
  ASSERT_NE(queue.front(), nullptr);
  EXPECT_EQ(queue.front()->count, 5u);
  EXPECT_EQ(queue.front()->json.size(), 201u);
  EXPECT_TRUE(queue.add(spans(1, 500)));
  EXPECT_FALSE(queue.add(spans(1, 500))) << "what is being sent is held, too";
  queue.drop_front();
  EXPECT_TRUE(queue.add(spans(1, 200)));
  EXPECT_EQ(queue.front()->count, 4u);
  while (!queue.empty()) queue.drop_front();
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(SpanQueue, BatchBeingSentDoesNotGrow) {
  SpanQueue queue(1000, 300);
  EXPECT_TRUE(queue.add(spans(1, 10)));
  const SpanText* sent = queue.front();
  EXPECT_TRUE(queue.add(spans(1, 10)));
  EXPECT_TRUE(queue.add(spans(1, 10)));
  EXPECT_EQ(sent->count, 1u);
  queue.drop_front();
  EXPECT_EQ(queue.front()->count, 2u);
}

TEST(Export, JudgesAnswersByTheSpecification) {
  for (const int status : {200, 202}) EXPECT_EQ(judge_export(status), ExportVerdict::kTaken);
  for (const int status : {429, 502, 503, 504}) EXPECT_EQ(judge_export(status), ExportVerdict::kAgain);
  for (const int status : {301, 400, 401, 404, 413, 500, 501, 505})
    EXPECT_EQ(judge_export(status), ExportVerdict::kRefused) << status;
  EXPECT_EQ(rejected_spans(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}})"), 3u);
  EXPECT_EQ(rejected_spans(R"({"partialSuccess":{"rejectedSpans":4}})"), 4u);
  for (const char* none : {"", "{}", "[]", "gar\xff", R"({"partialSuccess":null})",
                           R"({"partialSuccess":{"rejectedSpans":-1}})"})
    EXPECT_EQ(rejected_spans(none), 0u) << none;
}

TEST(Export, WaitsForRetryAfter) {
  constexpr int64_t kNow = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(retry_after("7", kNow), 7s);
  EXPECT_EQ(retry_after("Sun, 06 Nov 1994 08:50:37 GMT", kNow), 60s);
  EXPECT_EQ(retry_after("Sun, 06 Nov 1994 08:48:37 GMT", kNow), 0s);
  EXPECT_EQ(retry_after("-5", kNow), 0s);
  for (const char* none : {"", "soon", "7s", "99999999999999999999", "Sun, 06 Nov"})
    EXPECT_FALSE(retry_after(none, kNow).has_value()) << none;
  const ExportBackoff backoff;
  EXPECT_EQ(backoff.wait(1, 0), 1s);
  EXPECT_EQ(backoff.wait(3, 0), 4s);
  EXPECT_EQ(backoff.wait(1000, 0), 30s);
  EXPECT_LE(backoff.wait(1000, UINT64_MAX), 45s);
  EXPECT_GT(backoff.wait(1, UINT64_MAX), 1400ms);
}

// A collector that takes every batch.
Task<void> collect(std::vector<std::string>& bodies, Exchange& exchange) {
  bodies.push_back(exchange.request().body);
  const HeaderList headers;
  co_await exchange.respond(200, headers, "{}");
}

class TracedGateway : public ::testing::Test {
 protected:
  TracedGateway() : collector_(loop_, [this](Exchange& exchange) { return collect(bodies_, exchange); }) {
    GatewayConfig config = TestGateway::quick_config();
    config.grace = 2s;
    config.telemetry.otlp.emplace();
    config.telemetry.otlp->collector = collector_.endpoint();
    config.telemetry.sample_ratio = 0;
    gateway_ = std::make_unique<TestGateway>(
        loop_, std::vector<Upstream>{worker_.endpoint(), other_.endpoint()}, config);
    EXPECT_TRUE(gateway_->becomes(0, "ready"));
    EXPECT_TRUE(gateway_->becomes(1, "ready"));
  }
  // The last POST's header at a worker.
  std::string told(const std::string& header) {
    return loop_.call([&] {
      const StubWorker& asked = worker_.seen.empty() ? other_ : worker_;
      return std::string(asked.seen.back().header(header));
    });
  }
  void ask(const std::string& headers) {
    loop_.call([this] { worker_.seen.clear(), other_.seen.clear(); });
    EXPECT_EQ(gateway_->ask(chat_body("p", "Hi"), headers).status, 200);
  }

  Loop loop_;
  std::vector<std::string> bodies_;
  TestServer collector_;
  StubWorker worker_{loop_, answer_whole}, other_{loop_, answer_whole};
  std::unique_ptr<TestGateway> gateway_;
};

TEST_F(TracedGateway, ParentSentToTheWorkerIsTheGatewaysSpan) {
  ask(std::string("traceparent: ") + kHeader + "\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
  const auto context = parse_traceparent(told("traceparent"));
  ASSERT_TRUE(context.has_value()) << told("traceparent");
  EXPECT_EQ(context->trace_id(), kTrace);
  EXPECT_NE(context->span, parse_traceparent(kHeader)->span);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(told("tracestate"), "a=1");
  gateway_->drain();
  ASSERT_EQ(bodies_.size(), 1u);
  const auto batch = parse_json(bodies_[0]);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_NE(bodies_[0].find("\"spanId\":\"" + span_id(context->span) + "\""), std::string::npos);
  EXPECT_NE(bodies_[0].find("\"parentSpanId\":\"b7ad6b7169203331\""), std::string::npos);
}

TEST_F(TracedGateway, UnsampledTraceIsPassedOnUnsampled) {
  ask("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n");
  EXPECT_EQ(told("traceparent").substr(0, 36), std::string("00-") + kTrace + "-");
  EXPECT_TRUE(told("traceparent").ends_with("-00"));
  gateway_->drain();
  EXPECT_TRUE(bodies_.empty());
}

TEST_F(TracedGateway, MalformedParentStartsANewTrace) {
  for (const std::string wrong : {"00-xyz", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    ask("traceparent: " + wrong + "\r\ntracestate: a=1\r\n");
    const auto context = parse_traceparent(told("traceparent"));
    ASSERT_TRUE(context.has_value()) << told("traceparent");
    EXPECT_NE(context->trace_id(), kTrace);
    EXPECT_FALSE(context->sampled());
    EXPECT_EQ(told("tracestate"), "") << "it belongs to a parent that is not known";
  }
}

TEST_F(TracedGateway, EveryTryHasItsOwnSpan) {
  for (StubWorker* worker : {&worker_, &other_}) loop_.call([=] { worker->answer = answer_status(503); });
  EXPECT_EQ(gateway_->ask(chat_body("p", "Hi"), std::string("traceparent: ") + kHeader + "\r\n").status, 503);
  const auto seen = loop_.call([this] {
    return std::pair(std::string(worker_.seen.at(0).header("traceparent")),
                     std::string(other_.seen.at(0).header("traceparent")));
  });
  EXPECT_NE(seen.first, seen.second);
  gateway_->drain();
  ASSERT_EQ(bodies_.size(), 1u);
  for (const std::string& header : {seen.first, seen.second})
    EXPECT_NE(bodies_[0].find("\"spanId\":\"" + header.substr(36, 16) + "\""), std::string::npos) << header;
}

TEST(UntracedGateway, PassesOnTheClientsHeader) {
  Loop loop;
  StubWorker worker(loop, answer_whole);
  TestGateway gateway(loop, {worker.endpoint()});
  EXPECT_TRUE(gateway.becomes(0, "ready"));
  EXPECT_EQ(gateway.ask(chat_body("p", "Hi"), std::string("traceparent: ") + kHeader + "\r\n").status, 200);
  EXPECT_EQ(loop.call([&] { return std::string(worker.seen.at(0).header("traceparent")); }), kHeader);
}

}  // namespace trace_test
}  // namespace troupe::gateway_test
