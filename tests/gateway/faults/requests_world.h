#pragma once

// Requests through one gateway whose workers do the worst while they answer: die at any token, hang and wake
// up again, fall behind a partition that tells nobody, are full, ill, or of another kind; tell errors in
// mid-stream, or go on with a stream in another one's place. Clients go away, deadlines pass, retries run out
// of budget, probes are late and lost.
//
// It drives the machine that decides, RequestFlow, with NodeHealth, Router, and
// ResumeTap on streams of the very bytes that workers send, in pieces. What must hold: every request has
// exactly one end, by its deadline; what its client has is the answer's tokens from the first on, each once,
// all of them where it is complete; no worker is asked twice, none that takes no requests; retries keep to
// their budget; and nobody is given up while a worker that could take over, a try and the budget for it are
// left.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/fleet/health.h"
#include "gateway/route/request/request_flow.h"
#include "gateway/upstream/resume_filter.h"
#include "tests/gateway/faults/timeline.h"

namespace troupe::route::faults {

class RequestsWorld : private Timeline, private NodeSignals {
 public:
  // `heeds_tried`: false forgets whom a request was sent to, to see that it is noticed.
  RequestsWorld(uint64_t seed, bool verbose, bool heeds_tried = true);
  Outcome run();

 private:
  struct Worker {
    bool alive = true, hung = false, cut = false, full = false, draining = false;
    bool is_troupe_worker = true;
    int ill_status = 0;
    uint64_t life = 1;
    NodeHealth health;  // as the gateway has it
    bool heartbeats = false;
  };
  struct Flight {
    size_t number = 0;
    PrefixKey key;
    bool stream = true;
    int tokens = 0;
    RequestFlow flow;
    std::vector<NodeIndex> tried;  // by the world's own account
    uint64_t tries = 0;            // what comes of an earlier one is not heeded
    std::optional<ResumeTap> tap;
    bool asks_ids = false, is_troupe_worker = false, head_sent = false, ended = false;
    std::string resume_body, held, client;
    TimePoint heard_at{}, began_at{}, deadline{};
  };
  // The answer of a worker to one try, as far as it has to send it.
  struct Answer {
    std::string id;
    int at = 0;  // the next token
    bool strays = false;
    uint64_t life = 0;
  };
  using Shared = std::shared_ptr<Flight>;

  // requests_world.cc: the fleet, and what must hold
  void set_up();
  void add_worker();
  void any_fault();
  void probe();
  void saw(NodeIndex node, HealthEvent event);
  void publish();
  void check_text(const Flight& request, bool complete);
  void check_given_up(const Flight& request, const Failure& failure);
  void check_retry(const Flight& request, const Failure& failure);
  double budget_left() const;

  // requests_way.cc: the gateway's side (proxy.cc, forward.cc), then the workers'
  void ask();
  void send(const Shared& request);
  void fail(const Shared& request, const Failure& failure);
  void failed_for_good(const Shared& request, const Failure& failure);
  void end(const Shared& request, const std::string& how);
  void watch_silence(const Shared& request, uint64_t number);
  void heard(const Shared& request, std::string bytes);
  void heard_end(const Shared& request);
  FlowContext context() { return {*router_, *budget_, *this, stall_}; }
  AnswerProgress progress(const Flight& request) const;
  void on_event(NodeIndex node, HealthEvent event, TimePoint) override { saw(node, event); }
  NodeStatus node_status(NodeIndex node) const override;
  void saw_heartbeat(NodeIndex node) override { workers_[node].heartbeats = true; }
  void probe(NodeIndex, TimePoint) override {}
  void arrives(const Shared& request, uint64_t number);
  void write(const Shared& request, uint64_t number, Answer answer);
  std::string chunk(const Flight& request, const Answer& answer, int tokens) const;
  void put(const Shared& request, uint64_t number, const std::string& bytes);

  const bool heeds_tried_;
  RouterOptions options_;
  RetryOptions retry_options_;
  StallOptions stall_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<RetryBudget> budget_;
  std::vector<Worker> workers_;
  uint64_t view_epoch_ = 0;
  bool faulty_ = true;
  double loss_ = 0, breaks_ = 0;
  // The budget's own arithmetic once more.
  double budget_left_ = 0;
  TimePoint budget_at_{};
  int64_t complete_ = 0, resumed_ = 0;
  std::vector<Shared> requests_;
};

}  // namespace troupe::route::faults
