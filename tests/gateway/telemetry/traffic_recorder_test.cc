// The record of traffic: equal ids for equal beginnings of prompts, lines in order whatever ends when, and
// files that cannot be written.

#include "gateway/telemetry/traffic_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/net/timer.h"
#include "gateway/telemetry/trace_writer.h"
#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test {
namespace traffic_test {

constexpr Hash128 kSalt{1, 2};

struct Message {
  Role role;
  std::string text;
};

GenerateRequest chat_of(const std::vector<Message>& messages) {
  GenerateRequest request;
  request.model = "demo";
  for (const Message& message : messages) {
    ChatMessage& added = request.messages.emplace_back();
    added.role = message.role;
    added.content = message.text;
  }
  return request;
}

// Some words, the same for the same name.
std::string words(const std::string& name, size_t bytes) {
  std::string out;
  for (uint32_t i = 0; out.size() < bytes; ++i) out += name + " says " + std::to_string(i * i) + ". ";
  out.resize(bytes);
  return out;
}

// Drives TraceWriter as the recorder does, by default one request at a time.
struct Lines {
  TraceWriter lines;
  uint64_t number = 0;

  uint64_t arrive(const GenerateRequest& request, size_t prefix_bytes = 0) {
    TrafficArrival arrival;
    arrival.number = ++number;
    arrival.unix_us = static_cast<int64_t>(number) * 1'000'500;
    arrival.model = request.model;
    arrival.set = prefix_bytes > 0 ? Hash128{7, 7} : Hash128{};
    arrival.prefix_bytes = prefix_bytes;
    arrival.marks = prompt_marks(request, kSalt);
    lines.arrived(std::move(arrival));
    return number;
  }
  void end(uint64_t which, int64_t prompt, int64_t answer) {
    TrafficOutcome outcome;
    outcome.node = "n1";
    outcome.branch = "home";
    outcome.attempts = 1;
    outcome.status = 200;
    outcome.counts = route::AnswerCounts{prompt, answer, 0, true};
    lines.ended(which, outcome);
  }
  std::vector<bj::object> take() {
    std::string text;
    lines.take(text);
    return parse(text);
  }
  static std::vector<bj::object> parse(const std::string& text) {
    std::vector<bj::object> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const auto json = parse_json(line);
      EXPECT_TRUE(json.ok()) << line;
      if (json.ok()) out.push_back(json->as_object());
    }
    return out;
  }
  bj::object ask(const GenerateRequest& request, int64_t prompt, int64_t answer, size_t prefix_bytes = 0) {
    end(arrive(request, prefix_bytes), prompt, answer);
    const auto out = take();
    EXPECT_EQ(out.size(), 1u);
    return out.empty() ? bj::object() : out.front();
  }
};

std::vector<uint64_t> ids(const bj::object& line, const char* name = "hash_ids") {
  std::vector<uint64_t> out;
  if (const bj::value* list = line.if_contains(name); list != nullptr) {
    for (const bj::value& id : list->as_array()) out.push_back(id.to_number<uint64_t>());
  }
  return out;
}

size_t common(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  size_t same = 0;
  while (same < a.size() && same < b.size() && a[same] == b[same]) ++same;
  return same;
}

TEST(TraceWriter, EqualBeginningsHaveEqualIds) {
  Lines lines;
  const Message card{Role::kSystem, words("Newton", 2000)};
  const auto first = lines.ask(chat_of({card, {Role::kUser, "Who are you?"}}), 512, 20, 2000);
  const auto second = lines.ask(chat_of({card, {Role::kUser, words("another", 200)}}), 570, 20, 2000);
  EXPECT_EQ(ids(first).size(), 32u);
  EXPECT_EQ(ids(second).size(), 35u);
  // 2,000 of 2,012 bytes are the card: 508 tokens, 31 whole blocks.
  EXPECT_EQ(first.at("prefix_length").as_int64(), 508);
  EXPECT_EQ(second.at("prefix_length").as_int64(), 508);
  EXPECT_EQ(common(ids(first), ids(second)), 31u);
  // An edit in the card's middle parts them there, give or take a block.
  Message edited = card;
  edited.text[1000] = '#';
  const auto third = lines.ask(chat_of({edited, {Role::kUser, "Who are you?"}}), 512, 20, 2000);
  EXPECT_NEAR(static_cast<double>(common(ids(first), ids(third))), 15.5, 1.5);
}

TEST(TraceWriter, TurnBeginsWithTheLastOneAndItsAnswer) {
  Lines lines;
  std::vector<Message> talk{{Role::kSystem, words("card", 700)}, {Role::kUser, "Who?"}};
  int64_t tokens = 190;
  std::vector<uint64_t> held;
  for (int turn = 1; turn <= 4; ++turn) {
    const auto line = lines.ask(chat_of(talk), tokens, 50);
    EXPECT_EQ(line.at("turn").as_int64(), turn);
    EXPECT_EQ(common(held, ids(line)), held.size()) << "all that the node holds by then";
    held = ids(line);
    for (const uint64_t id : ids(line, "output_hash_ids")) held.push_back(id);
    EXPECT_EQ(held.size(), static_cast<size_t>(tokens + 50) / 16);
    talk.push_back({Role::kAssistant, words("answer" + std::to_string(turn), 200)});
    talk.push_back({Role::kUser, words("question" + std::to_string(turn), 90)});
    tokens += 50 + 27;
  }
}

// Assistant messages that were never seen as answers are text like others.
TEST(TraceWriter, ExampleDialoguesDifferByTheirText) {
  Lines lines;
  const auto with = [](const std::string& example) {
    return chat_of({{Role::kSystem, words("card", 400)},
                    {Role::kUser, "Say something."},
                    {Role::kAssistant, example},
                    {Role::kUser, "Go on."}});
  };
  const auto a = lines.ask(with(words("a", 600)), 300, 10), b = lines.ask(with(words("b", 600)), 300, 10);
  EXPECT_LE(common(ids(a), ids(b)), 9u);
  EXPECT_GT(common(ids(a), ids(b)), 3u);
}

TEST(TraceWriter, SaltHidesEqualTexts) {
  const auto request = chat_of({{Role::kUser, words("x", 100)}});
  EXPECT_EQ(prompt_marks(request, kSalt).grains, prompt_marks(request, kSalt).grains);
  EXPECT_NE(prompt_marks(request, kSalt).grains, prompt_marks(request, Hash128{1, 3}).grains);
}

TEST(TraceWriter, LinesComeInOrderOfArrival) {
  Lines lines;
  const auto request = chat_of({{Role::kUser, "Hello, how are you?"}});
  const uint64_t slow = lines.arrive(request), quick = lines.arrive(request);
  lines.end(quick, 20, 5);
  EXPECT_TRUE(lines.take().empty());
  lines.end(slow, 20, 500);
  const auto both = lines.take();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].at("output_length").as_int64(), 500);
  EXPECT_DOUBLE_EQ(both[0].at("timestamp").as_double(), 1000.5);
  EXPECT_EQ(lines.lines.lines(), 2u);
  lines.lines.ended(99, {});  // never arrived
  lines.end(slow, 20, 5);     // twice
  EXPECT_TRUE(lines.take().empty());
}

TEST(TraceWriter, EndlessRequestHoldsBackABoundedPart) {
  Lines lines{.lines = TraceWriter(64 << 10)};
  const auto request = chat_of({{Role::kUser, words("long", 3200)}});
  const uint64_t stuck = lines.arrive(request);
  size_t written = 0, unfinished = 0;
  for (int i = 0; i < 200; ++i) {
    lines.end(lines.arrive(request), 800, 10);
    for (const bj::object& line : lines.take()) {
      written += 1;
      unfinished += line.contains("unfinished") ? 1 : 0;
    }
  }
  EXPECT_EQ(unfinished, 1u);
  EXPECT_EQ(written, 201u) << "once the one in front is written, nothing is held back";
  lines.end(stuck, 800, 10);
  EXPECT_TRUE(lines.take().empty());
  const uint64_t last = lines.arrive(request);
  std::string text;
  lines.lines.take_all(text);
  EXPECT_EQ(Lines::parse(text).size(), 1u);
  EXPECT_NE(text.find("\"unfinished\":true"), std::string::npos) << last;
}

TEST(TraceWriter, LengthsWithoutUsageAreEstimated) {
  Lines lines;
  for (int i = 0; i < 50; ++i)
    lines.ask(chat_of({{Role::kUser, words("w" + std::to_string(i), 600)}}), 200, 40);
  TrafficOutcome outcome;
  outcome.status = 200;
  lines.lines.ended(lines.arrive(chat_of({{Role::kUser, words("new", 900)}})), outcome);
  const auto line = lines.take().at(0);
  EXPECT_TRUE(line.at("estimated").as_bool());
  EXPECT_NEAR(static_cast<double>(line.at("input_length").as_int64()), 300, 10);
  EXPECT_NEAR(static_cast<double>(line.at("output_length").as_int64()), 40, 15);
}

// Any text and any counts, sensible or not, give a line that a replay accepts.
TEST(TraceWriter, AnyCountsGiveAConsistentLine) {
  Lines lines;
  route::Random random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Message> messages;
    const uint32_t count = 1 + random.below(6);
    for (uint32_t i = 0; i < count; ++i)
      messages.push_back({static_cast<Role>(random.below(4)),
                          words("t" + std::to_string(random.below(3)), random.below(300))});
    const auto line =
        lines.ask(chat_of(messages), 1 + random.below(900), random.below(100), random.below(900));
    const int64_t prompt = line.at("input_length").as_int64(), answer = line.at("output_length").as_int64();
    EXPECT_EQ(static_cast<int64_t>(ids(line).size()), prompt / 16);
    EXPECT_EQ(static_cast<int64_t>(ids(line, "output_hash_ids").size()),
              (prompt + answer) / 16 - prompt / 16);
    const bj::value* prefix = line.if_contains("prefix_length");
    EXPECT_LE(prefix == nullptr ? 1 : prefix->as_int64(), prompt);
  }
}

struct Recorded {
  Metrics metrics;
  SteadyClock clock;
  Logger log{LogLevel::kError, -1};
  std::unique_ptr<TrafficRecorder> record;

  explicit Recorded(const std::string& path, Hash128 salt = kSalt) {
    auto opened = TrafficRecorder::open(path, {metrics, clock, log}, salt);
    EXPECT_TRUE(opened.ok()) << opened.status();
    record = *std::move(opened);
  }
  void ask(int count, size_t bytes = 400) {
    const PromptFingerprint marks = prompt_marks(chat_of({{Role::kUser, words("x", bytes)}}), kSalt);
    for (int i = 0; i < count; ++i) {
      TrafficArrival arrival;
      arrival.model = "demo";
      arrival.marks = marks;
      TrafficEntry entry(*record, std::move(arrival), clock.now());
      entry.outcome.status = 200;
      entry.outcome.counts = route::AnswerCounts{static_cast<int64_t>(bytes / 4), 10, 0, true};
    }
  }
  double metric(const std::string& line_start) const {
    const std::string text = "\n" + metrics.text();
    const size_t at = text.find("\n" + line_start + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + line_start.size() + 2);
  }
  double failed() const { return metric("troupe_gateway_record_dropped_total{reason=\"write_failed\"}"); }
  double full() const { return metric("troupe_gateway_record_dropped_total{reason=\"queue_full\"}"); }
};

struct TempFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("traffic_test." + std::to_string(getpid()));
  TempFile() { std::filesystem::remove(path); }
  ~TempFile() { std::filesystem::remove(path); }
  std::string text() const {
    std::stringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) usleep(10'000);
  return condition();
}

TEST(TrafficRecorder, AppendsToAnExistingFile) {
  const TempFile file;
  for (int run = 1; run <= 2; ++run) {
    Recorded recorded(file.path);
    recorded.ask(100);
    recorded.record.reset();
    EXPECT_EQ(Lines::parse(file.text()).size(), 100u * static_cast<size_t>(run));
    EXPECT_EQ(recorded.metric("troupe_gateway_record_lines_total"), 100);
  }
}

// Several records are joined by these ids, whatever each gateway thinks of a message's length.
TEST(TraceWriter, MessagesHaveTheSameIdsAtEveryGateway) {
  Lines here, there;
  const Message card{Role::kSystem, words("Newton", 2000)}, who{Role::kUser, "Who?"};
  const Message answer{Role::kAssistant, words("answer", 200)}, next{Role::kUser, words("next", 90)};
  there.ask(chat_of({card, {Role::kUser, words("another", 700)}}), 700, 20, 2000);
  const auto a = here.ask(chat_of({card, who}), 512, 20, 2000);
  const auto b = there.ask(chat_of({card, who, answer, next}), 580, 20, 2000);
  EXPECT_EQ(common(ids(a, "message_ids"), ids(b, "message_ids")), 2u);
  EXPECT_EQ(ids(a, "message_ends").back() + 68, ids(b, "message_ends").back());
  EXPECT_NE(ids(a, "message_ends").at(0), ids(b, "message_ends").at(0));
  EXPECT_EQ(ids(b, "message_answers"), std::vector<uint64_t>{2});
  EXPECT_TRUE(ids(a, "message_answers").empty());
}

TEST(TrafficRecorder, GatewaysWithOneSecretHaveOneSalt) {
  EXPECT_EQ(record_salt("one secret of all"), record_salt("one secret of all"));
  EXPECT_NE(record_salt("one secret of all"), record_salt("another secret"));
  const TempFile file;
  for (const Hash128 salt : {kSalt, kSalt, Hash128{1, 3}}) Recorded(file.path, salt).ask(1);
  const auto lines = Lines::parse(file.text());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("salt"), lines[1].at("salt"));
  EXPECT_NE(lines[0].at("salt"), lines[2].at("salt"));
}

TEST(TrafficRecorder, FullDiskDropsAndCounts) {
  Recorded recorded("/dev/full");
  recorded.ask(100);
  EXPECT_TRUE(eventually([&] { return recorded.failed() == 100; }));
  EXPECT_EQ(recorded.metric("troupe_gateway_record_lines_total"), 0);
}

// No reader: the pipe fills, then the queue, and requests never wait. With a reader: whole lines again.
TEST(TrafficRecorder, StuckReaderDropsAndCounts) {
  const TempFile file;
  ASSERT_EQ(mkfifo(file.path.c_str(), 0600), 0);
  const int reader = open(file.path.c_str(), O_RDWR | O_NONBLOCK);
  Recorded recorded(file.path);
  // 256 KB of hashes each, 100 MB: the queue's bound and the writer's share are 64.
  recorded.ask(400, 1 << 20);
  EXPECT_GT(recorded.full(), 100);
  recorded.record.reset();  // it ends all the same
  close(reader);
}

TEST(TrafficRecorder, ClosedPipeIsAFailedWrite) {
  const TempFile file;
  ASSERT_EQ(mkfifo(file.path.c_str(), 0600), 0);
  int reader = open(file.path.c_str(), O_RDONLY | O_NONBLOCK);
  Recorded recorded(file.path);
  close(reader);
  recorded.ask(10);
  EXPECT_TRUE(eventually([&] { return recorded.failed() == 10; }));
  reader = open(file.path.c_str(), O_RDONLY | O_NONBLOCK);
  recorded.ask(10);
  EXPECT_TRUE(eventually([&] { return recorded.metric("troupe_gateway_record_lines_total") == 10; }));
  std::string got(1 << 16, ' ');
  const ssize_t count = read(reader, got.data(), got.size());
  ASSERT_GT(count, 0);
  EXPECT_EQ(Lines::parse(got.substr(0, static_cast<size_t>(count))).size(), 10u);
  close(reader);
}

Task<void> never(StubWorker&, Exchange&) {
  const auto executor = co_await asio::this_coro::executor;
  Timer timer(executor);
  timer.expires_after(1h);
  co_await timer.async_wait(use_task);
}

TEST(TrafficRecorder, RecordsHowRequestsEnded) {
  const TempFile file;
  Loop loop;
  StubWorker worker(loop, answer_stream);
  GatewayConfig config = TestGateway::quick_config();
  config.record = file.path;
  {
    TestGateway gateway(loop, {worker.endpoint()}, config);
    EXPECT_EQ(gateway.ask(chat_body("You are Newton.", "Who?", true)).status, 200);
    loop.call([&] { worker.answer = answer_status(500); });
    EXPECT_EQ(gateway.ask(chat_body("You are Newton.", "Who else?")).status, 500);
    loop.call([&] { worker.answer = never; });
    {
      RawPeer client = gateway.connect();
      client.send(http_post("/v1/chat/completions", chat_body("You are Newton.", "And now?")));
      EXPECT_TRUE(loop.eventually([&] { return worker.running == 1; }));
    }
    EXPECT_TRUE(loop.eventually([&] { return worker.running == 0; }));
  }
  const auto lines = Lines::parse(file.text());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].at("status").as_int64(), 499);
  EXPECT_EQ(lines[0].at("status").as_int64(), 200);
  EXPECT_EQ(lines[0].at("input_length").as_int64(), 400);
  EXPECT_EQ(lines[0].at("cached").as_int64(), 384);
  EXPECT_EQ(lines[0].at("node").as_string(), worker.id());
  EXPECT_EQ(lines[1].at("status").as_int64(), 500);
  EXPECT_TRUE(lines[1].at("estimated").as_bool());
}

}  // namespace traffic_test
}  // namespace troupe::gateway_test
