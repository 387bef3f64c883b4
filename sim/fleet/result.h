#pragma once

// Result of a simulated run. Shares are 0..1, times in ms, and everything but the series counts only requests
// that arrived after the warm-up.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::sim {

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};
// Percentiles of unsorted values by nearest rank; 0 without values.
Percentiles percentiles(std::vector<float> values);

// One second of the run, warm-up included.
struct SecondSeries {
  int32_t arrived = 0, finished = 0, lost = 0;
  int64_t prompt_tokens = 0, hit_tokens = 0;  // of requests first admitted in this second
  float ttft_p50_ms = 0, ttft_p99_ms = 0;     // of first tokens in this second
  int32_t waiting = 0;                        // at the second's end, all nodes
};

struct NodeSeries {
  std::string id;
  int64_t requests = 0;  // finished there
  int64_t prompt_tokens = 0, hit_tokens = 0;
  int64_t work_tokens = 0;  // prompt tokens computed and tokens answered
  int64_t preemptions = 0;
  std::vector<float> work_per_s;  // work tokens in each second
  std::vector<float> running;     // requests at each second's end
  std::vector<float> kv_used;     // share of blocks referenced at each second's end
  std::vector<bool> up;           // there and alive in each second; an idle one is
};

// Effect of a fault in the seconds around it (present where there were faults after the warm-up; the first of
// them counts). None: nothing to compare with, no request had its first token in the 10 s before the fault,
// or none afterwards.
struct FaultFigures {
  std::optional<double> hit_dip;  // points: hit of the 10 s before minus the worst 2 s mean after
  std::optional<double> t95_s;    // until a 3 s mean of hit is >= 95 % of before; -1: never within the run
  std::optional<double> p99_before_ms;  // mean of the 10 s before
  std::optional<double> p99_peak_ms;    // worst second's TTFT p99 after
  // Time until a second's p99 is < 1.5 × before again; -1: never within the run.
  std::optional<double> p99_settled_s;
  double stall_max_ms = 0;  // longest gap between two tokens of a stream that ran at the fault or later
  int64_t resumed = 0;      // streams that went on elsewhere
  int64_t in_warmup = 0;    // faults that have no figures; the one figure where all are such
};

// Effect of a flash crowd on itself and on all other requests. TTFT p99.
struct CrowdFigures {
  double before_ms = 0;  // in the minute before, warm-up included
  double crowd_ms = 0;   // from its begin on: requests of the crowd's set
  double others_ms = 0;  // and all others
};

// Requests at the gateways' queues. Refused ones are among the lost.
struct QueueFigures {
  int64_t waited = 0;                        // let in afterwards, or not
  double wait_mean_ms = 0;                   // of these
  Percentiles wait_ms;                       // likewise
  int64_t refused_429 = 0, refused_503 = 0;  // by HTTP status
  struct Reason {
    std::string_view name;  // as in troupe_gateway_queue_refused_total
    int64_t count = 0;
  };
  std::vector<Reason> refused;  // those that there were
};

// Lost requests of one cause.
struct Loss {
  std::string why;
  int64_t count = 0;
};

struct Result {
  std::string policy;
  std::string mode;  // the gateways' source of residency; empty: the policy uses none
  int32_t nodes = 0, gateways = 0;
  uint64_t seed = 0;
  std::string profile;

  int64_t requests = 0;      // arrived
  int64_t lost = 0;          // answered by an error, or never admitted by the end
  std::vector<Loss> losses;  // the same by cause, the most frequent first
  int64_t prompt_tokens = 0;
  // Shares of one whole, the prompt tokens of all requests: a request that was never admitted found nothing,
  // and is in all three. (In a live run the whole is as the server counts, the bounds' is as in the trace.)
  double hit_tokens = 0;      // found cached at first admission
  double pooled_lru_hit = 0;  // oracle_caches.h; none (null) unless has_pool
  double infinite_hit = 0;
  double work_cov = 0;   // std/mean over nodes of work in windows of 100 s, mean of the windows
  double work_cov5 = 0;  // the same of 5 s
  bool has_pool = true;  // the total memory of all nodes is known
  Percentiles ttft_ms;
  double tpot_mean_ms = 0, tpot_p99_ms = 0;  // mean gap between a request's tokens
  double goodput = 0;                        // share of requests inside both limits
  double duration_s = 0;                     // measured span
  int64_t preemptions = 0;  // in the whole seconds after the warm-up, of any request: nodes count them
  int64_t retries = 0;
  std::optional<int64_t> skipped_lines;  // of the trace, if bad ones were to be skipped
  std::optional<CrowdFigures> crowd;
  std::optional<QueueFigures> queue;  // none: requests went to the nodes at once
  bool has_faults = false;
  FaultFigures faults;
  std::vector<SecondSeries> seconds;
  std::vector<NodeSeries> node_series;

  // Speed of the simulation. Not part of a report: reports of one seed are equal to the byte.
  double wall_s = 0;
  double decision_us = 0;  // mean of Router::decide()
  int64_t events = 0;
  int64_t simulated_requests = 0;  // warm-up included
};

// A run of a search: for the sustainable load, or for the nodes that a load needs.
struct LoadStep {
  double load = 0, rate = 0, goodput = 0, ttft_p99_ms = 0;
  bool holds = false;
  double tpot_p99_ms = 0;
  int32_t nodes = 0;  // 0: as many in every run
};

}  // namespace troupe::sim
