#include "tests/gateway/faults/requests_world.h"

#include <algorithm>
#include <span>
#include <utility>

namespace troupe::route::faults {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFaultsFor = seconds(6);
constexpr Duration kAskedFor = seconds(8);
constexpr Duration kRunFor = seconds(20);

}  // namespace

RequestsWorld::RequestsWorld(uint64_t seed, bool verbose, bool heeds_tried)
    : Timeline(seed, verbose), heeds_tried_(heeds_tried) {
  set_up();
}

void RequestsWorld::set_up() {
  constexpr std::array kModes{Mode::kExact, Mode::kGossip, Mode::kPlan, Mode::kStrict};
  options_.affinity.mode = kModes[pick(kModes.size())];
  options_.planner.strict_sets = 1 + pick(4);
  retry_options_.attempts_max = 1 + static_cast<int>(pick(5));
  retry_options_.afresh_after = milliseconds(200 + 200 * pick(10));
  retry_options_.budget_ratio = 0.3 * random_.unit();
  retry_options_.budget_per_s = chance(0.5) ? 0 : 3 * random_.unit();
  retry_options_.budget_max = 1 + 30 * random_.unit();
  stall_.silence_max = milliseconds(200 + 100 * pick(4));
  stall_.foreign_silence_max = milliseconds(800 + 100 * pick(10));
  stall_.foreign_stall_max = Duration::zero();
  loss_ = chance(0.3) ? 0 : 0.3 * random_.unit();
  breaks_ = chance(0.5) ? 0 : 0.03 * random_.unit();
  router_ = std::make_unique<Router>(options_, random_.next());
  budget_ = std::make_unique<RetryBudget>(retry_options_);
  budget_left_ = retry_options_.budget_max;
  budget_at_ = now_;
  const size_t workers = 1 + pick(7);
  for (size_t n = 0; n < workers; ++n) add_worker();
  out_.setting = std::string(mode_name(options_.affinity.mode)) + ", " + std::to_string(workers) +
                 " workers, " + std::to_string(retry_options_.attempts_max) + " tries";
}

void RequestsWorld::add_worker() {
  Worker& worker = workers_.emplace_back();
  worker.is_troupe_worker = chance(0.8);
  worker.health.on_event(HealthEvent::kProbeOk, now_);
  publish();
}

Outcome RequestsWorld::run() {
  every(ms(300), [this] { probe(); });
  every(ms(1000), [this] { router_->plan(now_); });
  const int faults = static_cast<int>(pick(20));
  scatter(faults, 50, kFaultsFor, [this] { any_fault(); });
  after(kFaultsFor, [this] {
    faulty_ = false;
    loss_ = 0;
    for (Worker& worker : workers_) {
      worker.hung = worker.cut = worker.full = worker.draining = false;
      worker.ill_status = 0;
      worker.alive = true;
    }
  });
  const int asked = 40 + static_cast<int>(pick(100));
  scatter(asked, 0, kAskedFor, [this] { ask(); });
  run_for(kRunFor, [] {});
  for (const Shared& request : requests_) {
    if (!request->ended) breach("request " + std::to_string(request->number) + " never ends");
  }
  if (router_->loads().in_flight_total() != 0) breach("requests stay booked");
  for (NodeIndex n = 0; n < workers_.size() && out_.breach.empty(); ++n) {
    if (workers_[n].health.state() != NodeState::kAlive && !workers_[n].health.failing())
      breach("in the end n" + std::to_string(n) + " is taken for " +
             std::string(node_state_name(workers_[n].health.state())));
  }
  return out_;
}

// --- the fleet ---

void RequestsWorld::any_fault() {
  out_.faults += 1;
  const NodeIndex node = pick(workers_.size());
  Worker& worker = workers_[node];
  const std::string who = "n" + std::to_string(node);
  const auto ends = [this, node](bool Worker::*what) {
    after(between(100, 4000), [this, node, what] { workers_[node].*what = false; });
  };
  switch (pick(8)) {
    case 0:
      say(who + " dies");
      worker.alive = false;
      worker.life += 1;
      return;
    case 1:
      say(who + " is back");
      worker.alive = true;
      return;
    case 2:
      say(who + " hangs");
      worker.hung = true;
      return ends(&Worker::hung);
    case 3:
      say(who + " is behind a partition");
      worker.cut = true;
      return ends(&Worker::cut);
    case 4:
      say(who + " is full");
      worker.full = true;
      return ends(&Worker::full);
    case 5: {
      constexpr std::array kStatuses{500, 502, 503, 504, 501, 400};
      worker.ill_status = kStatuses[pick(kStatuses.size())];
      say(who + " answers " + std::to_string(worker.ill_status));
      after(between(100, 4000), [this, node] { workers_[node].ill_status = 0; });
      return;
    }
    case 6:
      say(who + " drains");
      worker.draining = true;
      return ends(&Worker::draining);
    default:
      if (workers_.size() < 10) add_worker();
      return;
  }
}

void RequestsWorld::probe() {
  for (NodeIndex n = 0; n < workers_.size(); ++n) {
    const Worker& worker = workers_[n];
    HealthEvent event = HealthEvent::kProbeFail;
    if (worker.alive && !worker.hung && !worker.cut && !chance(loss_ / 2))
      event = worker.draining ? HealthEvent::kProbeNotReady : HealthEvent::kProbeOk;
    after(between(0.1, faulty_ ? 500 : 5), [this, n, event] { saw(n, event); });
  }
}

void RequestsWorld::saw(NodeIndex node, HealthEvent event) {
  NodeHealth& health = workers_[node].health;
  if (!health.on_event(event, now_)) return;
  say("n" + std::to_string(node) + " is taken for " + std::string(node_state_name(health.state())));
  if (health.state() == NodeState::kDead) {
    router_->forget_node(node);
    workers_[node].heartbeats = false;
  }
  publish();
}

void RequestsWorld::publish() {
  std::vector<NodeView> nodes(workers_.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].id = "n" + std::to_string(i);
    nodes[i].state = workers_[i].health.state();
    nodes[i].failing = workers_[i].health.failing();
    nodes[i].models = {"a"};
  }
  router_->update_cluster(std::make_shared<ClusterView>(++view_epoch_, std::move(nodes)));
}

// --- what must hold ---

// Tokens as the client has them, in whatever events they came.
void RequestsWorld::check_text(const Flight& request, bool complete) {
  std::string text;
  bool done = false, finished = false;
  if (!request.stream) {
    text = request.client;
    done = finished = complete;
  }
  for (size_t at = 0; request.stream && at < request.client.size();) {
    const size_t end = request.client.find("\n\n", at);
    const std::string_view event = std::string_view(request.client).substr(at, end - at);
    at = end == std::string::npos ? request.client.size() : end + 2;
    if (done) breach("a client is told more after [DONE]");
    if (event.find("\"troupe\"") != std::string_view::npos || event.starts_with(':'))
      breach("a client is told what is between gateway and worker");
    if (event == "data: [DONE]") {
      done = true;
      continue;
    }
    if (finished && event.find("\"content\"") != std::string_view::npos)
      breach("a client is told twice that it is finished");
    finished = finished || event.find("\"length\"") != std::string_view::npos;
    const size_t begin = event.find("\"content\":\"");
    if (begin == std::string_view::npos) continue;
    text += event.substr(begin + 11, event.find('"', begin + 11) - begin - 11);
  }
  std::string expected;
  for (int i = 0; i < request.tokens; ++i)
    expected +=
        "t" + std::to_string(hash_bytes(std::to_string(request.number) + "/" + std::to_string(i)).lo % 1000) +
        " ";
  if (!expected.starts_with(text))
    breach("request " + std::to_string(request.number) + ": a client has '" + text + "' of '" + expected +
           "'");
  if (!complete) return;
  if (text != expected || !done || !finished)
    breach("request " + std::to_string(request.number) + ": an answer is complete without all of its tokens");
}

double RequestsWorld::budget_left() const {
  const double since = std::chrono::duration<double>(now_ - budget_at_).count();
  return std::min(retry_options_.budget_max, budget_left_ + since * retry_options_.budget_per_s);
}

void RequestsWorld::check_retry(const Flight&, const Failure& failure) {
  const bool free = failure.kind == FailureKind::kConnect ||
                    (failure.kind == FailureKind::kStatus && failure.http_status == 429);
  if (free) return;
  budget_left_ = budget_left() - 1;
  budget_at_ = now_;
  if (budget_left_ < -1e-6) breach("retries are over their budget");
}

// Somebody could have gone on, by the rules, and was not asked.
void RequestsWorld::check_given_up(const Flight& request, const Failure& failure) {
  if (failure.kind == FailureKind::kDeadline) return;
  if (failure.kind == FailureKind::kStatus && !retryable_status(failure.http_status)) return;
  const bool afresh = request.head_sent && request.began_at != TimePoint{} &&
                      now_ - request.began_at >= retry_options_.afresh_after;
  const auto tries = std::span(request.tried).last(afresh ? 1 : request.tried.size());
  if (static_cast<int>(tries.size()) >= retry_options_.attempts_max) return;
  if (request.deadline - now_ < retry_options_.remaining_min) return;
  const bool free = failure.kind == FailureKind::kConnect ||
                    (failure.kind == FailureKind::kStatus && failure.http_status == 429);
  if (!free && budget_left() < 1 - 1e-6) return;
  const bool resumable = request.tap && request.tap->resumable();
  if (request.head_sent && !resumable) return;
  // Strict: a set's homes alone may be asked, and it gets others only where these have failed.
  if (options_.affinity.mode == Mode::kStrict) return;
  for (const NodeIndex n : router_->view().nodes_for("a")) {
    const bool tried = std::find(tries.begin(), tries.end(), n) != tries.end();
    if (!tried && (!request.head_sent || workers_[n].is_troupe_worker))
      breach("request " + std::to_string(request.number) + " is given up though n" + std::to_string(n) +
             " could take it");
  }
}

}  // namespace troupe::route::faults
