#pragma once

// Every number of the affinity policy, in one place, with where it comes from. "Measured" means: on persona
// chat and public traces, 16 and 64 simulated nodes, 1 to 16 gateways; the plateau around each is wide. The
// unit of the cost is one prompt token to compute.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe::route {

// From where the policy knows what a node holds.
enum class Mode : uint8_t {
  kExact,   // workers tell (residency events); a node whose feed is not in step counts as in kGossip
  kGossip,  // placements of this gateway and of those that share theirs
  kPlan,    // the table, and this gateway's own placements
  kStrict,  // the table forbids: a set's nodes and nowhere else
};
std::string_view mode_name(Mode mode);
std::vector<std::string> mode_names();
// The error lists the names there are.
StatusOr<Mode> parse_mode(std::string_view name);

struct AffinityOptions {
  Mode mode = Mode::kExact;
  // Gateways that share the fleet, until a router is told better. With one there is no herd to break up, so
  // no noise.
  int64_t gateways = 1;

  // What the cost says.
  // A pending token of others against a missing token of one's own; all of them together weigh at most what
  // is missing. Measured without that bound: from 1/30 to 1/9 hits differ by at most a point, at par a few
  // queued prefills push sessions off their nodes and hits fall from .79 to .37. With it, 2/15 against an
  // unbounded 1/15: p99 of first tokens 218 for 246 ms at 95 % of what a fleet sustains, 426 for 479 ms where
  // KV is tight, hits the same within .3 points.
  double pending_weight = 2.0 / 15;
  // In kPlan, which knows less of what is missing. (Measured: with 1/11 CoV is .10 for .09.)
  double pending_weight_plan = 1.0 / 22;
  // What the relative load of a node weighs. Measured: 200 to 1,000 change hits by at most a point; with 500
  // and pending at 1/8.6 p90 is 5..10 % lower for .3..1.5 points of hit.
  double load_tokens = 333;
  // But at most this share of a usual prompt, else it drowns what is cached of short ones. Measured with
  // prompts of some 350 tokens on workers ten times as fast: hit .865 for .856 of a pooled .8655 with one
  // gateway, .868 for .851 with sixteen.
  double load_prompt_share = 0.2;
  // Beyond the fleet's mean it grows as the square, else a flash crowd of long cards lands on 3 or 4 nodes
  // (measured: p99 of 5.1 s without this and the next two).
  double load_convex = 3;
  // Before a node's batch is full its cost rises steeply: a safety that rarely acts.
  double saturation_weight = 20;
  double saturation_from = 0.75;  // of max_num_seqs
  // Both halves of the load term: work done lately and requests there now. Either alone is worse (measured:
  // CoV .022 with work alone, .046 on long cards with requests alone).
  double work_share = 0.5;
  // Keeps one request on an idle fleet from being an imbalance (measured), and work from counting there.
  double requests_slack = 5;

  // Hot sets: as long as a set has fewer than hot_factor × its share of the fleet, growing onto one more node
  // is nearly free, where the fleet is busy. Measured: CoV .38 without on long cards, .024 with.
  double hot_factor = 4;
  double hot_discount = 0.95;
  Duration share_half_life = std::chrono::seconds(15);  // of a set's share of the work
  Duration share_tick = std::chrono::seconds(2);

  // Noise, only with several gateways and only among nodes that hold nothing of the request but what all
  // prompts share: there it is free. Measured: on holders it costs hits; without it p90 is 1.4 × on a trace.
  double noise_tokens = 167;
  // So many times of it where a stream's node has died: all gateways choose at one moment, before any hears
  // of the others', and would all take the node that is the least loaded. Measured on 16 nodes, with sixteen
  // gateways: the longest pause 804 to 583 ms (eight 467 to 382, four 469 to 454); 12 and 30 do no better.
  double displaced_noise = 6;
  int64_t noise_common_tokens = 576;  // a common block of 512 and a template line of 64
  double noise_common_share = 0.5;    // and at most so much of the set's own prefix, where there is a set

  // kPlan: what a session's own home within its set's nodes is worth. (Exact and gossip mode never believe
  // the table, not even where a gateway has just started. Measured, each of 4 to 16 gateways restarted once:
  // ten seconds of it took 1.8 points of hit where workers tell what they hold, and 1.9 where the others tell
  // their placements. Of a lone gateway that nobody tells hits were .807 with it and .806 without, p90 .5
  // and 1.0 s, p99 2.3 and 2.2 s: too little for a rule of its own.)
  double plan_home_tokens = 500;

  // Work of a node: its reports' work counter, or else what this gateway sent it.
  Duration work_time_constant = std::chrono::seconds(20);
  // The other gateways' ledgers tell of their requests before the nodes' reports do (load_tracker.h). For
  // several gateways that gossip.
  bool peer_ledger = false;

  // Candidates: up to this many serving nodes all are looked at; in a larger fleet a request's holders, the
  // least loaded and a random sample (the noise needs more than the least loaded to choose among).
  size_t scan_max = 16;
  size_t holders_max = 16;
  size_t least_loaded = 6;
  size_t sampled = 6;
  size_t order_max = 8;  // candidates told; a retry walks down them
};

struct PlannerOptions {
  Duration half_life = std::chrono::seconds(20);  // of set loads. Measured: as good as 40 s with 10 s ticks;
  Duration tick = std::chrono::seconds(4);        // 1 s ticks lose 3..10 points in kPlan
  // Copies are the set's share of the fleet, rounded up; a set this close to a whole node has a warm second.
  double warm_second_share = 0.5;
  double shrink_slack = 1.25;     // copies fall only when even this much more load needs fewer (measured)
  double keep_load = 1.10;        // of a node's planned load to the mean: up to here sets stay
  double fill_load = 1.05;        // up to here they come (both measured)
  double join_move_share = 0.02;  // of all load a tick, after a node joined: -10 points of hit without
  // Homes fill at most this share of a node's KV. A set beyond has no home: at .5, which leaves room for the
  // sessions' tails, that costs 7..10 points of hit with eight gateways where personas are many (measured).
  // ConversationsEndpoint get their room all the same: the node evicts what was used longest ago.
  double kv_share = 1;
  // kStrict: prefix keys are hashed into so many sets, and a node is given at most so many of them. (Eight
  // and two were the best of the strict ones measured.)
  size_t strict_sets = 8;
  size_t max_sets_per_node = 2;
  size_t max_nodes_per_set = 0;  // 0: no limit; any mode
};

// Bounds of what is remembered.
struct MemoryOptions {
  size_t sets_max = 16'384;             // sets known; the one used longest ago is forgotten
  size_t placements_per_node = 32'768;  // sets and sessions held per node, likewise
  size_t outbox_max = 65'536;           // placements waiting to be told to others; the oldest are dropped
  // A node whose KV size no report told: placements there count as resident up to so many tokens.
  int64_t node_kv_tokens_guess = 1'000'000;
};

// What the learner of shared prefixes remembers (shared_prefix_detector.h): some 15 MB with these bounds.
struct SharedPrefixDetectorOptions {
  size_t anchors_max = 65'536;
  size_t sessions_max = 65'536;  // conversations, and ends of prompts, known to have begun
  Duration window = std::chrono::minutes(10);
};

struct RouterOptions {
  std::string policy = "affinity";  // see policy.h
  Hash128 name;                     // tells this gateway's life from all others that share the fleet
  // The table that counts is kept where all gateways see it (shared_table.h): what is planned here is but a
  // draft of the next one there.
  bool shared_table = false;
  AffinityOptions affinity;
  PlannerOptions planner;
  MemoryOptions memory;
  SharedPrefixDetectorOptions sketch;
  size_t moves_at_once = 2;  // sets computed ahead of their requests (handover.h)
};

}  // namespace troupe::route
