// Streams that resume at another worker, as their clients see them: a pause, and no text twice.

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace {

const std::string kCard(1200, 'r');
constexpr int kWords = 12;                               // in the whole story
constexpr int kPromptTokens = 300, kCachedTokens = 288;  // as these workers count

// Script of one request, at any worker.
struct Part {
  enum class Then { kEnd, kBreak, kHang, kBeat, kError, kUndone };
  int words = kWords;  // most words that it sends
  Then then = Then::kEnd;
  ApiError error{};
  Duration reads = Duration::zero();  // delay before its head
  bool fails_probes = false;          // from then on the worker's
  bool tells = true;                  // sends ids and heartbeats, if asked for them
  bool resumes = true;                // else it begins anew, despite the request
};

std::string chunk_of(const std::string& id, const std::string& delta, const std::string& troupe,
                     const std::string& finish = "null") {
  return "data: {\"id\":\"" + id +
         R"(","object":"chat.completion.chunk","created":5,"model":"demo","choices":)" +
         R"([{"index":0,"delta":{)" + delta + R"(},"logprobs":null,"finish_reason":)" + finish + "}]" +
         troupe + "}\n\n";
}

std::string word(int i) {
  return "\"content\":\"w" + std::to_string(i) + " \"";
}

// The whole story as clients receive it.
std::string whole_story(const std::string& id = "chatcmpl-a", bool with_end = true) {
  std::string out;
  for (int i = 0; i < kWords; ++i)
    out += chunk_of(id, (i == 0 ? R"("role":"assistant",)" : "") + word(i), "");
  if (with_end) out += chunk_of(id, "", "", "\"stop\"") + "data: [DONE]\n\n";
  return out;
}

Task<void> pause(Exchange& exchange, Duration duration) {
  Timer timer(exchange.executor());
  timer.expires_after(duration);
  co_await timer.async_wait(use_task);
}

// Number of words that the client already has, according to the gateway.
int told_words(const bj::value& resume, std::string& id) {
  const bj::array& ids = resume.at("ids").as_array();
  id = std::string(resume.at("id").as_string().c_str());
  EXPECT_EQ(resume.at("seed").to_number<uint64_t>(), 77u);
  EXPECT_EQ(resume.at("created").to_number<int64_t>(), 5);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i].to_number<int>(), 100 + static_cast<int>(i));
  return static_cast<int>(ids.size());
}

Task<void> then(const Part& part, Exchange& exchange) {
  if (part.then == Part::Then::kHang) co_await pause(exchange, 60s);
  for (int i = 0; part.then == Part::Then::kBeat && i < 60; ++i) {
    co_await pause(exchange, 50ms);
    co_await exchange.write(": hb\n\n");
  }
  if (part.then == Part::Then::kError) {
    const std::string event = "data: " + part.error.to_json() + "\n\n";
    co_await exchange.write(event);
    co_await exchange.finish();
  }
}

// Streams the story as a worker of ours does: from troupe_resume's position, under its id.
Task<void> tell(const Part& part, std::string id, Exchange& exchange) {
  const auto body = parse_json(exchange.request().body);
  const bj::value* resume = body->get_object().if_contains("troupe_resume");
  const int from = resume != nullptr && part.resumes ? told_words(*resume, id) : 0;
  if (part.reads > Duration::zero()) co_await pause(exchange, part.reads);
  const bool tells = part.tells && exchange.request().header("x-troupe-ids") == "1";
  co_await begin_stream(exchange);
  if (tells) co_await exchange.write(": hb\n\n");
  const int end = std::min(from + part.words, kWords);
  for (int i = from; i < end; ++i) {
    std::string troupe = ",\"troupe\":{\"ids\":[" + std::to_string(100 + i) + "]";
    if (i == from) troupe += ",\"seed\":77";
    troupe = tells ? troupe + "}" : "";
    const std::string event = chunk_of(id, (i == 0 ? R"("role":"assistant",)" : "") + word(i), troupe);
    co_await exchange.write(event);
  }
  co_await then(part, exchange);
  if (part.then == Part::Then::kBreak || part.then == Part::Then::kError) co_return;
  const std::string seed = from == kWords ? ",\"seed\":77" : "";
  const std::string counts = ",\"prompt_tokens\":" + std::to_string(kPromptTokens) +
                             ",\"completion_tokens\":" + std::to_string(kWords) +
                             ",\"cached_tokens\":" + std::to_string(kCachedTokens);
  const std::string finish =
      chunk_of(id, "", tells ? ",\"troupe\":{\"ids\":[]" + seed + counts + "}" : "", "\"stop\"");
  co_await exchange.write(finish);
  if (part.then == Part::Then::kUndone) co_return;
  co_await exchange.write("data: [DONE]\n\n");
  co_await exchange.finish();
}

using Script = std::vector<Part>;

// The script decides on stalls, not a busy machine.
GatewayConfig quiet_config(Duration silence_max = 60s) {
  GatewayConfig config = TestGateway::quick_config();
  config.proxy.silence_max = silence_max;
  config.proxy.retry.attempts_max = 4;
  return config;
}

// Workers of ours with a script: its parts apply to requests in order of arrival; the last one to all further
// ones.
class Cast {
 public:
  explicit Cast(Script script, size_t workers = 2, GatewayConfig config = quiet_config())
      : parts(std::move(script)) {
    std::vector<Upstream> endpoints;
    for (size_t n = 0; n < workers; ++n) {
      stubs.push_back(std::make_unique<StubWorker>(
          loop, [this](StubWorker& stub, Exchange& e) { return play(*this, stub, e); }));
      stubs.back()->load_status = 200;
      stubs.back()->load.epoch = "life " + std::to_string(n);
      endpoints.push_back(stubs.back()->endpoint());
    }
    gateway = std::make_unique<TestGateway>(loop, endpoints, config);
    EXPECT_TRUE(loop.eventually([&] {
      for (route::NodeIndex n = 0; n < stubs.size(); ++n) {
        if (!gateway->gateway->fleet().is_troupe_worker(n)) return false;
      }
      return true;
    }));
  }
  ~Cast() {
    gateway.reset();
    stubs.clear();
  }
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;

  Answer ask(const std::string& more = "", const std::string& headers = "") {
    std::string body = chat_body(kCard, "x", true);
    body.insert(body.size() - 1, more);
    return gateway->ask(body, headers);
  }
  size_t asked() {
    return loop.call([&] { return asked_; });
  }
  double resumes(const std::string& result) {
    return gateway->metric("troupe_gateway_resumes_total{result=\"" + result + "\"}");
  }
  // Waits until no booking is left and no worker works.
  bool settles() {
    return loop.eventually([&] {
      int running = 0;
      for (const auto& stub : stubs) running += stub->running;
      const route::LoadTracker& loads = gateway->gateway->router().loads();
      return running == 0 && loads.in_flight_total() == 0 && loads.pending_tokens_total() == 0;
    });
  }

  Loop loop;
  const Script parts;
  std::vector<std::unique_ptr<StubWorker>> stubs;
  std::unique_ptr<TestGateway> gateway;

 private:
  static Task<void> play(Cast& cast, StubWorker& stub, Exchange& exchange) {
    const size_t number = cast.asked_++;
    const Part part = cast.parts[std::min(number, cast.parts.size() - 1)];
    if (part.fails_probes) stub.ready_status = 500;
    std::string id = number == 0 || part.resumes ? "chatcmpl-a" : "chatcmpl-b";
    co_await tell(part, std::move(id), exchange);
  }
  size_t asked_ = 0;
};

using Then = Part::Then;

TEST(Resume, ClientsSeeNothingOfIdsAndHeartbeats) {
  Cast cast(Script(1));
  const Answer answer = cast.ask();
  EXPECT_EQ(answer.body, whole_story());
  EXPECT_TRUE(answer.complete);
  for (const auto& stub : cast.stubs) {
    for (const HttpRequest& seen : stub->seen) EXPECT_EQ(seen.header("x-troupe-ids"), "1");
  }
}

// Clients did not ask for usage: cached tokens are counted for every stream; for a resumed one, those of the
// worker that ended it.
TEST(Resume, CachedTokensOfEveryStreamAreCounted) {
  const auto actual = [](const Cast& cast) {
    return cast.gateway->metric("troupe_gateway_cached_tokens_actual_total");
  };
  Cast cast(Script{{}, {}, {.words = 3, .then = Then::kBreak}, {}});
  cast.ask();
  cast.ask();
  EXPECT_EQ(actual(cast), 2 * kCachedTokens);
  EXPECT_GT(cast.gateway->metric("troupe_gateway_cached_tokens_expected_total"), 0) << "of the second one";
  cast.ask();
  EXPECT_EQ(cast.resumes("resumed"), 1);
  EXPECT_EQ(actual(cast), 3 * kCachedTokens);
  // A worker that only repeats the end of a complete answer has looked nothing up.
  Cast undone(Script{{.then = Then::kUndone}, {}});
  EXPECT_EQ(undone.ask().body, whole_story());
  EXPECT_EQ(actual(undone), 0);
}

TEST(Resume, OnlyOurWorkersStreamsAreAskedForIds) {
  Loop loop;
  StubWorker foreign(loop, answer_stream);
  TestGateway gateway(loop, {foreign.endpoint()});
  gateway.ask(chat_body(kCard, "x", true));
  ASSERT_EQ(foreign.seen.size(), 1u);
  EXPECT_EQ(foreign.seen[0].header("x-troupe-ids"), "");
  Cast cast(Script(1), 1);
  cast.gateway->ask(chat_body(kCard, "x", false));
  ASSERT_EQ(cast.stubs[0]->seen.size(), 1u);
  EXPECT_EQ(cast.stubs[0]->seen[0].header("x-troupe-ids"), "");
}

TEST(Resume, BrokenStreamResumesAtTheNextWorker) {
  for (const int words : {1, 5, kWords}) {
    Cast cast(Script{{.words = words, .then = Then::kBreak}, {}});
    const Answer answer = cast.ask();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, whole_story()) << words;
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(cast.asked(), 2u);
    EXPECT_EQ(cast.resumes("resumed"), 1);
    EXPECT_EQ(cast.resumes("failed"), 0);
    EXPECT_EQ(cast.gateway->metric("troupe_gateway_resume_pause_seconds_count"), 1);
    EXPECT_EQ(cast.gateway->metric("troupe_gateway_retries_total{failure=\"body\"}"), 1);
    EXPECT_EQ(cast.gateway->metric("troupe_gateway_requests_total{code=\"200\"}"), 1);
    EXPECT_EQ(cast.gateway->metric("troupe_gateway_broken_answers_total"), 0);
    EXPECT_TRUE(cast.settles());
  }
}

TEST(Resume, HangingStreamResumesAtTheNextWorker) {
  Cast cast(Script{{.words = 4, .then = Then::kHang}, {}}, 2, quiet_config(300ms));
  const Answer answer = cast.ask();
  EXPECT_EQ(answer.body, whole_story());
  EXPECT_EQ(cast.gateway->metric("troupe_gateway_retries_total{failure=\"silent\"}"), 1);
  EXPECT_TRUE(cast.settles()) << "the one that hung is still asked";
}

TEST(Resume, HangBeforeTheFirstEventIsRetriedAtTheNextWorker) {
  Cast cast(Script{{.words = 0, .then = Then::kHang}, {}}, 2, quiet_config(300ms));
  const Answer answer = cast.ask();
  EXPECT_EQ(answer.body, whole_story());
  EXPECT_EQ(answer.route("attempt"), "2") << "nothing had gone out";
  EXPECT_EQ(cast.resumes("resumed"), 0);
}

TEST(Resume, HeartbeatsKeepASlowStreamAlive) {
  Cast cast(Script{{.then = Then::kBeat}}, 2, quiet_config(1500ms));
  const Answer answer = cast.ask();  // three seconds of heartbeats only
  EXPECT_EQ(answer.body, whole_story());
  EXPECT_EQ(cast.asked(), 1u);
}

TEST(Resume, OnlyWorkerIsWaitedFor) {
  for (const size_t workers : {1u, 2u}) {
    GatewayConfig config = quiet_config(200ms);
    config.proxy.retry.attempts_max = workers == 1 ? 4 : 1;
    Cast cast(Script{{.words = 4, .then = Then::kHang}}, workers, config);
    const Answer answer = cast.ask("", "x-request-timeout-ms: 1200\r\n");
    EXPECT_TRUE(answer.body.starts_with(whole_story("chatcmpl-a", false).substr(0, 200)));
    EXPECT_NE(answer.body.find("deadline_exceeded"), std::string::npos) << answer.body;
    EXPECT_EQ(cast.asked(), 1u);
  }
}

TEST(Resume, StreamResumesAgainAfterEachFailureUntilNoWorkerIsLeft) {
  Cast cast(Script{{.words = 3, .then = Then::kBreak}}, 4);
  const Answer answer = cast.ask();
  // Four times three words, and then no worker is left for the end.
  EXPECT_TRUE(answer.body.starts_with(whole_story("chatcmpl-a", false) + "data: {\"error\"")) << answer.body;
  EXPECT_NE(answer.body.find("no other could go on"), std::string::npos);
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(answer.complete) << "a clean end";
  EXPECT_EQ(cast.asked(), 4u) << "nobody is asked twice";
  EXPECT_EQ(cast.resumes("resumed"), 3);
  EXPECT_EQ(cast.resumes("failed"), 1);
  EXPECT_EQ(cast.gateway->metric("troupe_gateway_broken_answers_total"), 1);
}

TEST(Resume, AttemptsAreBounded) {
  GatewayConfig config = quiet_config();
  config.proxy.retry.attempts_max = 2;
  Cast cast(Script{{.words = 2, .then = Then::kBreak}}, 4, config);
  EXPECT_NE(cast.ask().body.find("no other could go on"), std::string::npos);
  EXPECT_EQ(cast.asked(), 2u);
}

// Two workers, each of which breaks off again and again: a long stream outlives more deaths than it has
// tries, on workers that have been asked before, too.
TEST(Resume, LongStreamGetsNewAttemptsAfterAWhile) {
  GatewayConfig config = quiet_config();
  config.proxy.retry.attempts_max = 2;
  config.proxy.retry.afresh_after = std::chrono::nanoseconds(1);
  const Part breaks{.words = 2, .then = Then::kBreak};
  Cast cast(Script{breaks, breaks, breaks, breaks, {}}, 2, config);
  EXPECT_EQ(cast.ask().body, whole_story());
  EXPECT_EQ(cast.asked(), 5u);
  EXPECT_EQ(cast.resumes("resumed"), 4);
}

TEST(Resume, WorkerThatBeginsAnewIsRejected) {
  for (const bool tells : {true, false}) {
    Cast cast(Script{{.words = 5, .then = Then::kBreak}, {.tells = tells, .resumes = false}, {}}, 3);
    EXPECT_EQ(cast.ask().body, whole_story()) << tells;
    EXPECT_EQ(cast.asked(), 3u);
  }
}

TEST(Resume, FinishedAnswerIsNotFinishedTwice) {
  Cast cast(Script{{.then = Then::kUndone}, {}});
  EXPECT_EQ(cast.ask().body, whole_story());
  EXPECT_EQ(cast.asked(), 2u);
}

TEST(Resume, BrokenStreamOfSeveralChoicesEndsWithAnErrorEvent) {
  Cast cast(Script{{.words = 3, .then = Then::kBreak}, {}});
  const Answer answer = cast.ask(",\"n\":2");
  EXPECT_NE(answer.body.find("{\"error\""), std::string::npos) << answer.body;
  EXPECT_EQ(answer.body.find("troupe"), std::string::npos);
  EXPECT_EQ(cast.asked(), 1u);
  EXPECT_EQ(cast.resumes("failed"), 0) << "nobody could have";
}

TEST(Resume, ErrorBeforeTheFirstEventIsAStatus) {
  Cast cast(Script{{.words = 0, .then = Then::kError, .error = ApiError::bad_field("n", "not so")}});
  const Answer answer = cast.ask();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, ApiError::bad_field("n", "not so").to_json());
  EXPECT_EQ(answer.header("content-type"), "application/json");
  EXPECT_EQ(cast.asked(), 1u);
  Cast full(Script{{.words = 0, .then = Then::kError, .error = ApiError::overloaded("full", 1)}});
  const Answer refused = full.ask();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(full.asked(), 2u) << "the other one may have room";
}

TEST(Resume, StreamOfAStoppingWorkerResumesAtAnother) {
  Cast cast(Script{{.words = 5, .then = Then::kError, .error = ApiError::unavailable("stopping")}, {}});
  EXPECT_EQ(cast.ask().body, whole_story());
  Cast alone(Script{{.words = 5, .then = Then::kError, .error = ApiError::unavailable("stopping")}}, 1);
  const Answer answer = alone.ask();
  EXPECT_TRUE(answer.body.ends_with("data: " + ApiError::unavailable("stopping").to_json() + "\n\n"))
      << "its own words";
}

TEST(Resume, DeadlineErrorIsNotRetried) {
  Cast cast(Script{{.words = 5, .then = Then::kError, .error = ApiError::deadline("too late")}, {}});
  const Answer answer = cast.ask();
  EXPECT_TRUE(answer.body.ends_with("data: " + ApiError::deadline("too late").to_json() + "\n\n"));
  EXPECT_EQ(cast.asked(), 1u);
}

TEST(Resume, DisconnectFreesTheResumingWorker) {
  Cast cast(Script{{.words = 4, .then = Then::kBreak}, {.words = 2, .then = Then::kHang}});
  RawPeer peer = cast.gateway->connect();
  peer.send(http_post("/v1/chat/completions", chat_body(kCard, "x", true)));
  ASSERT_NE(peer.read_until(word(5)), "");
  peer.close();
  EXPECT_TRUE(cast.settles());
  EXPECT_EQ(cast.asked(), 2u);
}

TEST(Resume, LongPrefillIsNotAHang) {
  for (const bool hangs : {false, true}) {
    const Duration reads = hangs ? Duration(60s) : Duration(1200ms);
    Cast cast(Script{{}, {.reads = reads, .fails_probes = hangs}, {}}, 2, quiet_config(200ms));
    cast.ask();  // which shows that this worker sends heartbeats
    const Answer answer = cast.ask();
    EXPECT_EQ(answer.body, whole_story());
    EXPECT_EQ(answer.route("attempt"), hangs ? "2" : "1");
    EXPECT_EQ(cast.asked(), hangs ? 3u : 2u) << "its probes say which";
  }
}

TEST(Resume, ClientsCannotResume) {
  Cast cast(Script(1));
  const Answer answer = cast.ask(R"(,"troupe_resume":{"ids":[1],"seed":1})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("troupe_resume"), std::string::npos);
  EXPECT_EQ(cast.asked(), 0u);
}

Task<void> answer_in_a_minute(StubWorker&, Exchange& exchange) {
  return pause(exchange, 60s);
}

TEST(Resume, WholeAnswerOfADeadWorkerIsRetriedElsewhere) {
  Loop loop;
  StubWorker a(loop, answer_in_a_minute), b(loop, answer_never);
  a.load_status = b.load_status = 200;
  a.load.epoch = b.load.epoch = "life";
  TestGateway gateway(loop, {a.endpoint(), b.endpoint()}, quiet_config(100ms));
  ASSERT_TRUE(loop.eventually([&] {
    return gateway.gateway->fleet().is_troupe_worker(0) && gateway.gateway->fleet().is_troupe_worker(1);
  }));
  RawPeer peer = gateway.connect();
  peer.send(http_post("/v1/chat/completions", chat_body(kCard, "x")));
  ASSERT_TRUE(loop.eventually([&] { return a.running + b.running == 1; }));
  loop.call([&] {
    StubWorker& dying = a.running == 1 ? a : b;
    dying.ready_status = 500;
    (a.running == 1 ? b : a).answer = answer_whole;
  });
  const Answer answer = read_answer(peer);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.route("attempt"), "2");
  EXPECT_TRUE(loop.eventually([&] { return a.running + b.running == 0; }));
}

TEST(Resume, BudgetBoundsResumesLikeRetries) {
  GatewayConfig config = quiet_config();
  config.proxy.retry.budget_max = config.proxy.retry.budget_ratio = config.proxy.retry.budget_per_s = 0;
  Cast cast(Script{{.words = 4, .then = Then::kBreak}, {}}, 2, config);
  EXPECT_NE(cast.ask().body.find("{\"error\""), std::string::npos);
  EXPECT_EQ(cast.asked(), 1u);
}

}  // namespace
}  // namespace troupe::gateway_test
