// The cost of a decision, at 16 to 1,024 nodes, of a plan, of admission, and of naming a prompt by hashes.
// A fleet as busy as one in production: 25 requests in flight a node, 2,000 personas by Zipf's law,
// conversations of several turns.
//
//   route_bench [--benchmark_filter=…]

#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gateway/route/admission/admission.h"
#include "gateway/route/router.h"

namespace troupe::route {
namespace {

constexpr int kSets = 2000;

std::shared_ptr<const ClusterView> cluster_of(size_t count) {
  std::vector<NodeView> nodes(count);
  for (size_t i = 0; i < count; ++i) {
    nodes[i].id = "node-" + std::to_string(i);
    nodes[i].state = NodeState::kAlive;
    nodes[i].models = {"demo"};
  }
  return std::make_shared<ClusterView>(1, std::move(nodes));
}

Hash128 hash_of(const char* kind, uint64_t number) {
  return hash_bytes(kind + std::to_string(number));
}

struct Flight {
  PrefixKey key;
  InFlight sent;
};

// Sessions take turns; requests are open as long as `nodes` × 25 later ones have come.
class Traffic {
 public:
  Traffic(size_t nodes, const char* policy, int64_t gateways) : nodes_(nodes), random_(7) {
    RouterOptions options;
    options.policy = policy;
    options.affinity.gateways = gateways;
    router = std::make_unique<Router>(options, 1);
    router->update_cluster(cluster_of(nodes));
    double sum = 0;
    for (int i = 0; i < kSets; ++i) cumulative_.push_back(sum += std::pow(i + 1, -0.9));
    for (int i = 0; i < kSets; ++i) sets_.push_back(hash_of("set", static_cast<uint64_t>(i)));
    sessions_.resize(nodes * 200);
    for (size_t i = 0; i < sessions_.size(); ++i) start(sessions_[i]);
    for (size_t i = 0; i < nodes * 100; ++i) step();
  }

  const PrefixKey& next_key() {
    return sessions_[random_.below(static_cast<uint32_t>(sessions_.size()))].key;
  }

  void step() {
    Session& session = sessions_[random_.below(static_cast<uint32_t>(sessions_.size()))];
    now += std::chrono::microseconds(40'000 / nodes_);
    const Decision decision = router->decide(session.key, "demo", now);
    open_.push_back({session.key, router->on_sent(session.key, "demo", decision.order[0], now)});
    router->first_byte(open_.back().key, open_.back().sent, now);
    if (open_.size() > nodes_ * 25) {
      Flight& flight = open_.front();
      const AnswerCounts counts{flight.key.prompt_tokens, 120, 0, false};
      router->on_finished(flight.key, flight.sent, counts, now);
      open_.pop_front();
    }
    session.key.prompt_tokens += 160;
    if (++session.turn == 8) start(session);
  }

  std::unique_ptr<Router> router;
  TimePoint now = TimePoint{} + std::chrono::seconds(1);

 private:
  struct Session {
    PrefixKey key;
    int turn = 0;
  };
  void start(Session& session) {
    const double draw = random_.unit() * cumulative_.back();
    const auto set = std::lower_bound(cumulative_.begin(), cumulative_.end(), draw) - cumulative_.begin();
    session.key = PrefixKey{};
    session.key.set = sets_[static_cast<size_t>(set)];
    session.key.session = hash_of("session", ++started_);
    session.key.prefix_tokens = 1000;
    session.key.prompt_tokens = 1100;
    session.turn = static_cast<int>(random_.below(8));
  }

  size_t nodes_;
  Random random_;
  std::vector<double> cumulative_;
  std::vector<Hash128> sets_;
  std::vector<Session> sessions_;
  std::deque<Flight> open_;
  uint64_t started_ = 0;
};

// A fleet that has been busy for a while. A benchmark is begun several times until it runs long enough: the
// last fleet is kept for it.
Traffic& busy(size_t nodes, const char* policy, int64_t gateways) {
  static std::string name;
  static std::unique_ptr<Traffic> kept;
  const std::string wanted =
      std::string(policy) + " " + std::to_string(gateways) + " " + std::to_string(nodes);
  if (name != wanted) kept = std::make_unique<Traffic>(nodes, policy, gateways);
  name = wanted;
  return *kept;
}

void decide(benchmark::State& state, const char* policy, int64_t gateways) {
  Traffic& traffic = busy(static_cast<size_t>(state.range(0)), policy, gateways);
  std::vector<PrefixKey> keys;  // few enough to stay in the cache: a gateway's key has just been made
  for (int i = 0; i < 1024; ++i) keys.push_back(traffic.next_key());
  size_t i = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(traffic.router->decide(keys[i++ % keys.size()], "demo", traffic.now));
}
BENCHMARK_CAPTURE(decide, affinity, "affinity", 1)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);
BENCHMARK_CAPTURE(decide, affinity_8_gateways, "affinity", 8)->Arg(16)->Arg(1024);
// The rivals look at every node.
BENCHMARK_CAPTURE(decide, power_of_two, "power-of-two", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, chwbl, "chwbl", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, rendezvous_session, "rendezvous-session", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, sglang_cache_aware, "sglang-cache-aware", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, dynamo, "dynamo", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, lmetric, "lmetric", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, gie, "gie", 1)->Arg(16)->Arg(1024);
BENCHMARK_CAPTURE(decide, preble, "preble", 1)->Arg(16)->Arg(1024);

// A request's whole life in the router: decide, sent, first byte, finished.
void whole_request(benchmark::State& state) {
  Traffic& traffic = busy(static_cast<size_t>(state.range(0)), "affinity", 1);
  for (auto _ : state) traffic.step();
}
BENCHMARK(whole_request)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

SetLoads loads_of(int swapped) {
  SetLoads loads;
  loads.epoch = 1;
  for (int i = 0; i < kSets; ++i) {
    const int rank = (i + swapped * 7) % kSets;
    loads.sets.push_back(
        SetLoad{hash_of("set", static_cast<uint64_t>(i)), std::pow(rank + 1, -0.9), 1000, "demo"});
  }
  return loads;
}

void first_plan(benchmark::State& state) {
  const auto view = cluster_of(static_cast<size_t>(state.range(0)));
  const SetLoads loads = loads_of(0);
  for (auto _ : state) {
    Planner planner({}, Mode::kPlan);
    benchmark::DoNotOptimize(planner.plan({*view, {}}, loads));
  }
}
BENCHMARK(first_plan)->Arg(16)->Arg(1024)->Unit(benchmark::kMicrosecond);

// Loads that drift: every tick the popularity has moved on by seven ranks.
void tick(benchmark::State& state) {
  const auto view = cluster_of(static_cast<size_t>(state.range(0)));
  Planner planner({}, Mode::kPlan);
  int tick = 0;
  planner.plan({*view, {}}, loads_of(tick));
  for (auto _ : state) {
    state.PauseTiming();
    SetLoads loads = loads_of(++tick);
    state.ResumeTiming();
    benchmark::DoNotOptimize(planner.plan({*view, {}}, std::move(loads)));
  }
}
BENCHMARK(tick)->Arg(16)->Arg(1024)->Unit(benchmark::kMicrosecond);

// A chat of `messages` with 8 KB of text, a quarter of them the card.
GenerateRequest chat_of_8k(int messages) {
  constexpr size_t kBytes = 8192;
  GenerateRequest request;
  request.kind = GenerateRequest::Kind::kChat;
  request.model = "demo";
  request.messages.push_back(ChatMessage{Role::kSystem, std::string(kBytes / 4, 'c'), {}});
  for (int i = 1; i < messages; ++i) {
    std::string text(kBytes * 3 / 4 / static_cast<size_t>(messages - 1), static_cast<char>('a' + i % 26));
    request.messages.push_back(ChatMessage{i % 2 == 1 ? Role::kUser : Role::kAssistant, text, {}});
  }
  return request;
}

double ns_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

// The key of an 8 KB prompt against one bare XXH3 pass over as many bytes: `ratio` stays below 3. (Both are
// timed in turns and the better of each is taken: a busy machine slows one or the other.)
void prefix_key_8k(benchmark::State& state) {
  const GenerateRequest request = chat_of_8k(static_cast<int>(state.range(0)));
  const std::string bytes(8192, 'x');
  double key_ns = 1e9, bare_ns = 1e9;
  for (auto _ : state) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) benchmark::DoNotOptimize(make_prefix_key(request, "session"));
    key_ns = std::min(key_ns, ns_since(begin) / 100);
    begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) benchmark::DoNotOptimize(hash_bytes(bytes));
    bare_ns = std::min(bare_ns, ns_since(begin) / 100);
  }
  state.counters["key_ns"] = key_ns;
  state.counters["xxh3_ns"] = bare_ns;
  state.counters["ratio"] = key_ns / bare_ns;
}
BENCHMARK(prefix_key_8k)->Arg(2)->Arg(8)->Arg(20);

// The cost that learning sets adds to a request: the look, and the look and the learning, of conversations of
// 200 personas by messages (Arg: their number).
void sketch(benchmark::State& state, bool learn) {
  SharedPrefixDetector sketch((SharedPrefixDetectorOptions()));
  Random random(3);
  std::vector<PrefixKey> keys;
  for (uint64_t i = 0; i < 20'000; ++i) {
    PrefixKey key;
    Hash128 chain = hash_of("card", random.below(200));
    for (int m = 0; m < state.range(0); ++m) {
      key.anchors.push_back(Anchor{chain, static_cast<size_t>(1000 + 200 * m), 0});
      chain = hash_of("link", mix_hash(chain, Hash128{i, 1}));
    }
    key.session = hash_of("session", i);
    key.prompt_bytes = key.anchors.back().bytes;
    key.chat = true;
    key.guessed_anchors = 1;
    keys.push_back(std::move(key));
  }
  TimePoint now = TimePoint{} + std::chrono::seconds(1);
  for (const PrefixKey& key : keys) sketch.learn(key, now);
  size_t at = 0;
  for (auto _ : state) {
    PrefixKey& key = keys[at++ % keys.size()];
    sketch.refine(key);
    if (learn) sketch.learn(key, now += std::chrono::milliseconds(2));
  }
}
BENCHMARK_CAPTURE(sketch, refine, false)->Arg(2)->Arg(20)->Arg(130);
BENCHMARK_CAPTURE(sketch, refine_and_learn, true)->Arg(2)->Arg(20)->Arg(130);

// A request in and one out, of 2,000 personas with 400 at the workers: where nobody waits, and where (Arg) so
// many do.
void admission(benchmark::State& state) {
  const auto waiting = static_cast<size_t>(state.range(0));
  AdmissionOptions options;
  options.wait_max = std::chrono::hours(1);
  Admission admission(options);
  Random random(9);
  AdmissionRequest request;
  request.pool = "demo";
  request.pool_room = waiting == 0 ? 1'000'000 : 400;
  request.tokens = 300;
  request.deadline = TimePoint::max();
  TimePoint now = TimePoint{} + std::chrono::seconds(1);
  std::deque<uint64_t> inside;
  const auto arrive = [&] {
    now += std::chrono::microseconds(100);
    request.persona = Hash128{random.below(2000), 1};
    const auto answer = admission.arrive(request, now);
    if (answer.outcome == AdmissionOutcome::kAdmitted) inside.push_back(answer.ticket);
  };
  const auto leave = [&] {
    admission.leave(inside.front(), 280, now);
    inside.pop_front();
    for (const auto& event : admission.advance(now)) inside.push_back(event.ticket);
  };
  while (inside.size() < 400) arrive();
  while (admission.waiting() < waiting) arrive();
  for (auto _ : state) {
    arrive();
    leave();
  }
}
BENCHMARK(admission)->Arg(0)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace troupe::route

BENCHMARK_MAIN();
