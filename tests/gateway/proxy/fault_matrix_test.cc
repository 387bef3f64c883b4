// The faults of a foreign worker, whole answers and streams, with a good worker beside it: no request fails,
// none waits more than twice as long as it takes the probes to find a dead worker dead, one that is only slow
// is waited for, and the table of it is printed.

#include <cstdio>
#include <future>

#include "tests/gateway/gateway_fixture.h"

namespace troupe::gateway_test::fault_matrix {
namespace {

constexpr int kPersonas = 12;
constexpr Duration kSlow = 1300ms;  // longer than a silence without a look at the worker's health

Task<void> answer_either(StubWorker& stub, Exchange& exchange) {
  const bool stream = exchange.request().body.find("\"stream\":true") != std::string::npos;
  return stream ? answer_stream(stub, exchange) : answer_whole(stub, exchange);
}

Task<void> stay_silent(StubWorker& stub, Exchange& exchange, Duration silence) {
  Timer timer(exchange.executor());
  timer.expires_after(silence);
  co_await timer.async_wait(use_task);
  co_await answer_either(stub, exchange);
}

Task<void> say(Exchange& exchange, bool stream, std::string events, bool cuts) {
  HeaderList headers;
  headers.emplace_back("content-type", stream ? "text/event-stream" : "application/json");
  co_await exchange.start(200, headers);
  if (!events.empty()) co_await exchange.write(events);
  if (cuts) co_return exchange.cut();
  co_await exchange.finish();
}

const std::string kRole = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
const std::string kError = R"({"error":{"message":"boom"}})";

StubAnswer says(const std::string& events, const std::string& whole, bool cuts = false) {
  return [=](StubWorker&, Exchange& exchange) {
    const bool stream = exchange.request().body.find("\"stream\":true") != std::string::npos;
    return say(exchange, stream, stream ? events : whole, cuts);
  };
}

struct Fault {
  const char* name;
  StubAnswer answer;
  bool dead = false;    // its probes fail as well,
  bool frozen = false;  // by silence
  bool slow = false;    // its probes are answered, and its answers are good
  bool waits() const { return dead || slow; }
};

std::vector<Fault> faults() {
  const auto silent_for = [](Duration silence) {
    return [silence](StubWorker& stub, Exchange& exchange) { return stay_silent(stub, exchange, silence); };
  };
  return {{"frozen", silent_for(60s), true, true},
          {"401", answer_status(401)},
          {"404", answer_status(404)},
          {"empty", says(kRole, "")},
          {"cut", says(kRole, "{\"choices\":", true)},
          {"error event", says(kRole + "data: " + kError + "\n\n", kError)},
          {"slow first token", silent_for(5s), true},
          {"slow, probes well", silent_for(kSlow), false, false, true},
          {"429", answer_status(429)}};
}

struct Cell {
  int asked = 0, failed = 0, retried = 0;  // requests
  size_t asked_of_bad = 0;
  Duration longest{};  // until a request was answered
  // From the fault until the probes have found the worker dead, whether or not answers have come; zero: they
  // pass.
  Duration verdict{};
};

class Matrix {
 public:
  Matrix(Fault fault, bool stream)
      : fault_(std::move(fault)),
        stream_(stream),
        gateway_(loop_, {bad_.endpoint(), good_.endpoint()}, config()) {}

  Cell run() {
    Cell cell;
    // Both are well at first: the requests that follow find the bad one as their home, as well as the good
    // one.
    for (int i = 0; i < kPersonas; ++i) EXPECT_EQ(ask(i).status, 200);
    EXPECT_GT(loop_.call([&] { return bad_.seen.size(); }), 0u) << "every persona lives elsewhere";
    std::vector<RawPeer> peers;
    const TimePoint broke = now();
    loop_.call([&] {
      bad_.seen.clear();
      bad_.answer = fault_.answer;
      if (fault_.frozen) bad_.ready_after = 60s;
      if (fault_.dead && !fault_.frozen) bad_.ready_status = 500;
    });
    if (fault_.waits()) {  // at once, as many wait
      for (int i = 0; i < kPersonas; ++i) {
        peers.push_back(gateway_.connect());
        peers.back().send(http_post("/v1/chat/completions", body(i)));
      }
      if (fault_.dead) {
        EXPECT_TRUE(gateway_.becomes(0, "dead"));
        cell.verdict = now() - broke;
      }
      for (RawPeer& peer : peers) note(cell, read_answer(peer), broke);
    }
    for (int i = 0; i < kPersonas && !fault_.slow; ++i) {
      const TimePoint asked = now();
      note(cell, ask(i), asked);
    }
    cell.asked_of_bad = loop_.call([&] { return bad_.seen.size(); });
    return cell;
  }

 private:
  static GatewayConfig config() {
    GatewayConfig config = TestGateway::quick_config();
    // Slow enough that a verdict takes longer than the second after which silent requests are looked at.
    config.prober.interval = 300ms;
    config.prober.suspicion_interval = 700ms;
    config.prober.timeout = 400ms;
    return config;
  }
  std::string body(int persona) const {
    return chat_body("persona " + std::to_string(persona) + std::string(1300, 'p'), "x", stream_);
  }
  Answer ask(int persona) const { return gateway_.ask(body(persona)); }
  void note(Cell& cell, const Answer& answer, TimePoint asked) const {
    cell.longest = std::max(cell.longest, now() - asked);
    cell.asked += 1;
    if (answer.route("attempt") != "1") cell.retried += 1;
    const bool whole = stream_ ? answer.body.ends_with("data: [DONE]\n\n") : answer.complete;
    if (answer.status != 200 || !whole || answer.body.find("boom") != std::string::npos) cell.failed += 1;
  }

  const Fault fault_;
  const bool stream_;
  Loop loop_;
  StubWorker bad_{loop_, answer_either}, good_{loop_, answer_either};
  TestGateway gateway_;
};

// Cells that wait do so beside the others.
std::vector<std::future<Cell>> run_all(const std::vector<Fault>& all) {
  std::vector<std::future<Cell>> cells;
  for (const Fault& fault : all)
    for (const bool stream : {false, true})
      cells.push_back(std::async(fault.waits() ? std::launch::async : std::launch::deferred,
                                 [&fault, stream] { return Matrix(fault, stream).run(); }));
  return cells;
}

TEST(FaultMatrix, NoRequestFailsWhateverIsWrongWithOneWorker) {
  const auto ms = [](Duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  std::printf("%-17s %-7s %9s %7s %13s %11s %11s\n", "fault", "answer", "requests", "failed", "asked of bad",
              "longest ms", "verdict ms");
  const std::vector<Fault> all = faults();
  std::vector<std::future<Cell>> cells = run_all(all);
  for (size_t i = 0; i < cells.size(); ++i) {
    const Fault& fault = all[i / 2];
    const Cell cell = cells[i].get();
    std::printf("%-17s %-7s %9d %7d %13zu %11.1f %11.1f\n", fault.name, i % 2 == 1 ? "stream" : "whole",
                cell.asked, cell.failed, cell.asked_of_bad, ms(cell.longest), ms(cell.verdict));
    EXPECT_EQ(cell.failed, 0) << fault.name;
    EXPECT_GT(cell.asked_of_bad, 0u) << fault.name << ": nothing was shown";
    EXPECT_TRUE(!fault.dead || cell.longest <= 2 * cell.verdict) << fault.name;
    EXPECT_TRUE(!fault.slow || cell.retried == 0) << fault.name << ": a slow worker was given up";
    EXPECT_TRUE(!fault.slow || cell.longest >= kSlow) << fault.name;
  }
}

}  // namespace
}  // namespace troupe::gateway_test::fault_matrix
