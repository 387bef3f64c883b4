// The access log: one line per request whatever its outcome, which cannot be forged, delayed or lost.

#include "gateway/telemetry/access_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace access_log_test {

using Fields = std::map<std::string, std::string>;

// Parses a line by the rules of the log's form and no others.
Fields parse(const std::string& line) {
  Fields fields;
  size_t at = 0;
  while (at < line.size()) {
    const size_t equals = line.find('=', at);
    EXPECT_NE(equals, std::string::npos) << line;
    if (equals == std::string::npos) break;
    std::string key = line.substr(at, equals - at), value;
    at = equals + 1;
    if (at < line.size() && line[at] == '"') {
      for (at += 1; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') value += line[at++];
        value += line[at];
      }
      at += 1;
    } else {
      const size_t end = std::min(line.find(' ', at), line.size());
      value = line.substr(at, end - at);
      at = end;
    }
    EXPECT_TRUE(at == line.size() || line.compare(at, 3, "…") == 0 || line[at] == ' ') << line;
    at = std::min(line.find(' ', at), line.size()) + 1;
    EXPECT_TRUE(fields.emplace(std::move(key), std::move(value)).second) << line;
  }
  return fields;
}

struct TempFile {
  std::string path = std::filesystem::temp_directory_path() / ("access_test." + std::to_string(getpid()));
  TempFile() { remove(); }
  ~TempFile() { remove(); }
  void remove() const {
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".1");
  }
  static std::vector<Fields> lines_of(const std::string& path) {
    std::vector<Fields> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(parse(line));
    return lines;
  }
  std::vector<Fields> lines() const { return lines_of(path); }
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) usleep(10'000);
  return condition();
}

TimePoint at_ms(int64_t ms) {
  return TimePoint{} + std::chrono::seconds(1) + std::chrono::milliseconds(ms);
}

RequestRecord answered() {
  RequestRecord request_record;
  request_record.client = "10.0.0.7:51234";
  request_record.started = at_ms(0);
  request_record.chosen = at_ms(1);
  request_record.queued = at_ms(1);
  request_record.let_in = at_ms(21);
  request_record.first_byte = at_ms(50);
  request_record.tries.resize(2);
  request_record.tries[1].node = "127.0.0.1:31000";
  request_record.tries[1].branch = route::Branch::kHome;
  request_record.tries[1].expect_cached = 320;
  request_record.resumes = 1;
  request_record.counts = route::AnswerCounts{400, 9, 321, true};
  request_record.end = RequestOutcome::kAnswered;
  request_record.status = 200;
  return request_record;
}

RequestFacts facts_of_answered() {
  RequestFacts facts;
  facts.request_id = "req-1";
  facts.key = "writers";
  facts.method = "POST";
  facts.path = "/v1/chat/completions";
  facts.model = "demo";
  facts.set = Hash128{0, 0xab};
  facts.bytes_in = 812;
  facts.bytes_out = 1234;
  facts.stream = true;
  facts.ended = at_ms(1100);
  return facts;
}

TEST(AccessLine, HoldsAllOfARequestInOneLine) {
  EXPECT_EQ(access_line(answered(), facts_of_answered(), 1767323045678),
            "ts=2026-01-02T03:04:05.678Z level=info event=request request=req-1 trace=- "
            "client=10.0.0.7:51234 key=writers method=POST path=/v1/chat/completions status=200 end=answered "
            "why=- in=812 out=1234 ms=1100.000 first_byte_ms=50.000 own_ms=1.000 queue_ms=20.000 model=demo "
            "set=000000000000000000000000000000ab node=127.0.0.1:31000 branch=home attempts=2 resumes=1 "
            "expect=320 cached=321 prompt=400 completion=9 stream=true persona=-");
}

TEST(AccessLine, HasTheSameFieldsForAbsentValues) {
  RequestRecord request_record;
  request_record.started = at_ms(0);
  request_record.status = 401;
  RequestFacts facts;
  facts.ended = at_ms(1);
  const Fields nothing = parse(access_line(request_record, facts, 0));
  const Fields everything = parse(access_line(answered(), facts_of_answered(), 0));
  ASSERT_EQ(nothing.size(), everything.size());
  for (const auto& [key, value] : everything) EXPECT_EQ(nothing.count(key), 1u) << key;
  for (const char* key : {"first_byte_ms", "own_ms", "queue_ms", "model", "set", "node", "branch", "cached"})
    EXPECT_EQ(nothing.at(key), "-") << key;
}

TEST(AccessLine, ClientTextStaysInItsFieldAndInBounds) {
  const std::string forged = "/x status=200 end=answered\nts=2026-01-02T03:04:05.678Z event=request \"";
  RequestFacts facts = facts_of_answered();
  facts.path = facts.model = forged;
  facts.method = "GET\r\nX";
  const std::string line = access_line(answered(), facts, 0);
  EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos);
  const Fields fields = parse(line);
  EXPECT_EQ(fields.at("event"), "request");
  EXPECT_EQ(fields.at("status"), "200");
  EXPECT_EQ(fields.size(), parse(access_line(answered(), facts_of_answered(), 0)).size());

  const std::string endless(100'000, '\x01');
  facts.path = facts.model = facts.method = facts.key = facts.request_id = endless;
  RequestRecord request_record = answered();
  request_record.client = request_record.why = endless;
  EXPECT_LT(access_line(request_record, facts, 0).size(), size_t{PIPE_BUF} + 2000);
  facts = facts_of_answered();
  facts.path = facts.model = facts.method = endless;  // the client's fields; the rest are ours
  EXPECT_LT(access_line(answered(), facts, 0).size(), size_t{PIPE_BUF});
  HttpRequest request;
  request.method = request.path = endless;
  HttpRefusal refusal;
  refusal.request = &request;
  refusal.why = "x";
  EXPECT_LT(malformed_line(refusal, 0).size(), size_t{PIPE_BUF});
}

struct Opened {
  Metrics metrics;
  SteadyClock clock;
  Logger log{LogLevel::kError, -1};
  std::unique_ptr<AccessLog> access;
  explicit Opened(const std::string& path) {
    auto opened = AccessLog::open(path, {metrics, clock, log});
    EXPECT_TRUE(opened.ok()) << opened.status();
    access = *std::move(opened);
  }
  double metric(const std::string& line_start) const {
    const std::string text = "\n" + metrics.text();
    const size_t at = text.find("\n" + line_start + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + line_start.size() + 2);
  }
  double written() const { return metric("troupe_gateway_access_log_lines_total"); }
  double failed() const { return metric("troupe_gateway_access_log_dropped_total{reason=\"write_failed\"}"); }
  double full() const { return metric("troupe_gateway_access_log_dropped_total{reason=\"queue_full\"}"); }
};

TEST(AccessLog, ReopensARotatedFileWithoutLoss) {
  const TempFile file;
  Opened opened(file.path);
  struct stat info {};
  ASSERT_EQ(::stat(file.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  opened.access->add("event=request n=1");
  EXPECT_TRUE(eventually([&] { return opened.written() == 1; }));
  std::filesystem::rename(file.path, file.path + ".1");
  opened.access->add("event=request n=2");  // goes to the old file, wherever it is now
  EXPECT_TRUE(eventually([&] { return opened.written() == 2; }));
  opened.access->reopen();
  opened.access->add("event=request n=3");
  EXPECT_TRUE(eventually([&] { return opened.written() == 3; }));
  EXPECT_EQ(TempFile::lines_of(file.path + ".1").size(), 2u);
  ASSERT_EQ(file.lines().size(), 1u);
  EXPECT_EQ(file.lines()[0].at("n"), "3");
}

TEST(AccessLog, KeepsTheOldFileWhenTheNewOneCannotBeOpened) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("access_test_dir." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Opened opened(folder + "/log");
  std::filesystem::rename(folder, folder + ".old");
  opened.access->reopen();
  opened.access->add("event=request n=1");
  EXPECT_TRUE(eventually([&] { return opened.written() == 1; }));
  EXPECT_EQ(TempFile::lines_of(folder + ".old/log").size(), 1u);
  std::filesystem::remove_all(folder + ".old");
}

TEST(AccessLog, FullDiskDropsAndCounts) {
  Opened opened("/dev/full");
  for (int i = 0; i < 100; ++i) opened.access->add("event=request");
  EXPECT_TRUE(eventually([&] { return opened.failed() == 100; }));
  EXPECT_EQ(opened.written(), 0);
}

// No reader: the pipe fills, then the queue. add() does not wait, and the log still closes promptly.
TEST(AccessLog, StuckReaderDropsAndCounts) {
  const TempFile file;
  ASSERT_EQ(mkfifo(file.path.c_str(), 0600), 0);
  const int reader = ::open(file.path.c_str(), O_RDWR | O_NONBLOCK);
  {
    Opened opened(file.path);
    const std::string line(1000, 'x');
    for (int i = 0; i < 20'000; ++i) opened.access->add(line);  // 20 MB; the queue has 4, the writer as much
    EXPECT_GT(opened.full(), 5000);
    const TimePoint begin = now();
    opened.access.reset();
    EXPECT_LT(now() - begin, 20s);
  }
  ::close(reader);
}

TEST(AccessLog, InvalidPathIsRefusedByName) {
  Metrics metrics;
  const SteadyClock clock;
  const Logger log(LogLevel::kError, -1);
  const auto opened = AccessLog::open("/nowhere/access.log", {metrics, clock, log});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("access_log: /nowhere/access.log"), std::string::npos);
}

Task<void> never_answers(StubWorker&, Exchange&) {
  const auto executor = co_await asio::this_coro::executor;
  Timer timer(executor);
  timer.expires_after(1h);
  co_await timer.async_wait(use_task);
}

class LoggedGateway : public ::testing::Test {
 protected:
  LoggedGateway() {
    GatewayConfig config = TestGateway::quick_config();
    config.telemetry.access_log = file_.path;
    config.main_server.body_bytes_max = 100'000;
    config.main_server.write_timeout = 500ms;
    gateway_ = std::make_unique<TestGateway>(loop_, std::vector<Upstream>{worker_.endpoint()}, config);
    EXPECT_TRUE(gateway_->becomes(0, "ready"));
  }
  // Waits for the next line.
  Fields next() {
    const size_t index = ++lines_seen_;
    EXPECT_TRUE(eventually([&] { return file_.lines().size() >= index; }));
    const auto lines = file_.lines();
    EXPECT_EQ(lines.size(), index);
    return lines.size() < index ? Fields{} : lines[index - 1];
  }
  double received() const { return gateway_->metric("troupe_gateway_requests_received_total"); }

  const TempFile file_;
  Loop loop_;
  StubWorker worker_{loop_, answer_whole};
  std::unique_ptr<TestGateway> gateway_;
  size_t lines_seen_ = 0;
};

TEST_F(LoggedGateway, WritesALineForEveryRequestHoweverItEnds) {
  const Answer answer = gateway_->ask(chat_body("You are Song Jiang.", "Hello"));
  ASSERT_EQ(answer.status, 200);
  Fields line = next();
  EXPECT_EQ(line["event"], "request");
  EXPECT_EQ(line["request"], answer.header("x-request-id"));
  EXPECT_EQ(line["node"], worker_.id());
  EXPECT_EQ(line["set"], answer.route("set"));
  EXPECT_EQ(line["branch"], answer.route("branch"));
  EXPECT_EQ(line["status"] + line["end"], "200answered");
  EXPECT_EQ(line["prompt"] + " " + line["cached"] + " " + line["completion"], "400 320 9");
  EXPECT_EQ(line["in"], std::to_string(chat_body("You are Song Jiang.", "Hello").size()));
  EXPECT_EQ(line["out"], std::to_string(answer.head.size() + answer.body.size()));
  EXPECT_EQ(line["client"].substr(0, 10), "127.0.0.1:");
  EXPECT_GT(std::atof(line["ms"].c_str()), 0);

  loop_.call([this] { worker_.answer = answer_stream; });
  RawPeer streamed = gateway_->connect();
  streamed.send(http_post("/v1/chat/completions", chat_body("You are Song Jiang.", "Hello", true)));
  const std::string bytes = streamed.read_answer();
  line = next();
  EXPECT_EQ(line["stream"] + line["end"], "trueanswered");
  EXPECT_EQ(line["out"], std::to_string(bytes.size()));

  EXPECT_EQ(gateway_->ask("{\"messages\": 1}").status, 400);
  line = next();
  EXPECT_EQ(line["status"] + line["end"] + line["why"], "400refusedinvalid_request_error");
  EXPECT_EQ(line["attempts"], "0");

  EXPECT_EQ(gateway_->get("/nowhere?secret=1").status, 404);
  line = next();
  EXPECT_EQ(line["status"] + line["why"] + line["path"], "404not_found/nowhere");

  EXPECT_EQ(gateway_->get("/v1/models").status, 200);
  EXPECT_EQ(next()["end"], "answered");

  loop_.call([this] { worker_.answer = answer_status(503); });
  EXPECT_EQ(gateway_->ask(chat_body("p", "Hi")).status, 503);
  line = next();
  EXPECT_EQ(line["status"] + line["end"] + line["why"] + line["attempts"], "503refusedstatus1");

  loop_.call([this] { worker_.answer = answer_status(400); });
  EXPECT_EQ(gateway_->ask(chat_body("p", "Hi")).status, 400);
  line = next();
  EXPECT_EQ(line["status"] + line["end"] + line["why"], "400answeredstatus") << "an error has a reason";

  loop_.call([this] { worker_.answer = never_answers; });
  {
    RawPeer peer = gateway_->connect();
    peer.send(http_post("/v1/chat/completions", chat_body("p", "Hi")));
    EXPECT_TRUE(loop_.eventually([this] { return worker_.running == 1; }));
  }
  line = next();
  EXPECT_EQ(line["status"] + line["end"] + line["why"], "499cancelledclient_gone");
  EXPECT_EQ(received(), static_cast<double>(lines_seen_));
}

Task<void> floods(StubWorker& stub, Exchange& exchange) {
  co_await begin_stream(exchange);
  const std::string event = "data: {\"n\":\"" + std::string(60'000, 'x') + "\"}\n\n";
  for (;;) {
    co_await exchange.write(event);
    stub.bytes_written += event.size();
  }
}

TEST_F(LoggedGateway, NamesAClientThatReadsTooSlowly) {
  loop_.call([this] { worker_.answer = floods; });
  RawPeer peer = RawPeer::connect(gateway_->gateway->port(), 64 << 10);
  peer.send(http_post("/v1/chat/completions", chat_body("p", "Hi", true)));
  Fields line = next();  // though it holds its connection
  EXPECT_EQ(line["status"] + line["end"] + line["why"], "499cancelledclient_slow");
  EXPECT_EQ(line["node"] + line["attempts"], worker_.id() + "1");
  EXPECT_GT(std::atof(line["ms"].c_str()), 450);
  EXPECT_TRUE(loop_.eventually([this] { return worker_.running == 0; })) << "its worker computes no further";
}

TEST_F(LoggedGateway, MalformedRequestIsALineOfAnotherKind) {
  RawPeer peer = gateway_->connect();
  peer.send("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
  EXPECT_EQ(peer.read_to_end().substr(9, 3), "400");
  Fields line = next();
  EXPECT_EQ(line["event"] + line["status"] + line["path"], "malformed400-");
  EXPECT_EQ(line["client"].substr(0, 10), "127.0.0.1:");

  const Answer large = gateway_->ask(std::string(200'000, 'x'), "x-request-id: mine\r\n");
  EXPECT_EQ(large.status, 413);
  line = next();
  EXPECT_EQ(line["event"] + line["status"] + line["path"], "malformed413/v1/chat/completions");
  EXPECT_EQ(line["request"] + line["method"], "minePOST");
  EXPECT_EQ(received(), 0);
  EXPECT_EQ(gateway_->metric("troupe_gateway_malformed_total{code=\"400\"}"), 1);
  EXPECT_EQ(gateway_->metric("troupe_gateway_malformed_total{code=\"413\"}"), 1);
}

}  // namespace access_log_test
}  // namespace troupe::gateway_test
