#pragma once

// Every number of the affinity policy in one place, with its source. "Measured" means: on persona chat and
// public traces, 16 and 64 simulated nodes, 1 to 16 gateways; the plateau around each is wide. The unit of
// the cost is one prompt token to compute.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe::route {

// The policy's source for what a node holds.
enum class Mode : uint8_t {
  kExact,   // workers' residency events; a node whose feed is not in step counts as in kGossip
  kGossip,  // placements of this gateway and of its peers
  kPlan,    // the table, and this gateway's own placements
  kStrict,  // the table forbids every node outside the set's homes
};
inline constexpr std::pair<std::string_view, Mode> kModeNames[] = {
    {"exact", Mode::kExact}, {"gossip", Mode::kGossip}, {"plan", Mode::kPlan}, {"strict", Mode::kStrict}};
std::string_view mode_name(Mode mode);

struct AffinityOptions {
  Mode mode = Mode::kExact;
  // Gateways that share the fleet, until Router::set_gateways(). With one there is no herd to break up, so no
  // noise.
  int64_t gateways = 1;

  // The cost. Weight of a pending token of others against a missing token of one's own; all of them together
  // weigh at most what is missing. Measured without that bound: from 1/30 to 1/9 hits differ by at most a
  // point, at par a few queued prefills push sessions off their nodes and hits fall from .79 to
  // .37. With it, 2/15 against an unbounded 1/15: p99 of first tokens 218 for 246 ms at 95 % of what a fleet
  // sustains, 426 for 479 ms where KV is tight, hits the same within .3 points.
  double pending_weight = 2.0 / 15;
  // The same in kPlan, which knows less of what is missing. (Measured: with 1/11 CoV is .10 for .09.)
  double pending_weight_plan = 1.0 / 22;
  // Weight of a node's relative load. Measured: 200 to 1,000 change hits by at most a point; with 500 and
  // pending at 1/8.6 p90 is 5..10 % lower for .3..1.5 points of hit.
  double load_tokens = 333;
  // Bound of it, as a share of a usual prompt: without, load drowns what is cached of short prompts. Measured
  // with prompts of some 350 tokens on workers ten times as fast: hit .865 for .856 of a pooled .8655 with
  // one gateway, .868 for .851 with sixteen.
  double load_prompt_share = 0.2;
  // Load beyond the fleet's mean grows as the square, else a flash crowd of long cards lands on 3 or 4 nodes
  // (measured: p99 of 5.1 s without this and the next two).
  double load_convex = 3;
  // A node's cost rises steeply before its batch is full: a safety that rarely acts.
  double saturation_weight = 20;
  double saturation_from = 0.75;  // of max_num_seqs
  // Share of recent work in the load term; present requests are the rest. Either alone is worse (measured:
  // CoV .022 with work alone, .046 on long cards with requests alone).
  double work_share = 0.5;
  // Room for KV: what a conversation would evict at a node, in tokens, while another node has room for it.
  // (Where none has, every choice evicts, and it weighs nothing.) Then too the next copy of a hot set is
  // nearly free.
  double evict_weight = 1;
  double evict_room = 4;  // conversations: it weighs less where no node has room for as many

  // Keeps one request on an idle fleet from being an imbalance (measured), and work from counting there.
  double requests_slack = 5;

  // Hot sets: while a set has fewer nodes than hot_factor × its share of the fleet, growing onto one more is
  // nearly free where the fleet is busy. Measured: CoV .38 without on long cards, .024 with.
  double hot_factor = 4;
  double hot_discount = 0.95;
  Duration share_half_life = std::chrono::seconds(15);  // of a set's share of the work
  Duration share_tick = std::chrono::seconds(2);

  // Noise, only with several gateways or nodes that report no residency, and only among nodes that hold
  // nothing of the request but what all prompts share: there it is free. Measured: on holders it costs hits;
  // without it p90 is 1.4 × on a trace.
  double noise_tokens = 167;
  // Factor of the noise where a stream's node has died: all gateways choose at one moment, before any knows
  // the others' choices, and would all take the least loaded node. Measured on 16 nodes, with sixteen
  // gateways: the longest pause 804 to 583 ms (eight 467 to 382, four 469 to 454); 12 and 30 do no better.
  double displaced_noise = 6;
  int64_t noise_common_tokens = 576;  // a common block of 512 and a template line of 64
  double noise_common_share = 0.5;    // and at most this share of the set's own prefix, where there is a set

  // kPlan: bonus of a session's own home within its set's nodes. (Exact and gossip mode never believe the
  // table, not even where a gateway has just started. Measured, each of 4 to 16 gateways restarted once: ten
  // seconds of it took 1.8 points of hit with workers' residency events, and 1.9 with peers' placements. A
  // lone gateway with neither: hits .807 with it and .806 without, p90 .5 and 1.0 s, p99 2.3 and 2.2 s: too
  // little for a rule of its own.)
  double plan_home_tokens = 500;

  // Work of a node: its reports' work counter, or else what this gateway sent it.
  Duration work_time_constant = std::chrono::seconds(20);
  // The other gateways' ledgers report their requests before the nodes' reports do (load_tracker.h). For
  // several gateways that gossip.
  bool peer_ledger = false;

  // Candidates: up to this many serving nodes all are looked at; in a larger fleet a request's holders, the
  // least loaded and a random sample (the noise needs more than the least loaded to choose among).
  size_t scan_max = 16;
  size_t holders_max = 16;
  size_t least_loaded = 6;
  size_t sampled = 6;
  size_t order_max = 8;  // candidates in an order; a retry walks down them
};

struct PlannerOptions {
  Duration half_life = std::chrono::seconds(20);  // of set loads. Measured: as good as 40 s with 10 s ticks;
  Duration tick = std::chrono::seconds(4);        // 1 s ticks lose 3..10 points in kPlan
  // Copies are the set's share of the fleet, rounded up; a set this close to a whole node has a warm second.
  double warm_second_share = 0.5;
  double shrink_slack = 1.25;  // copies fall only when even this much more load needs fewer (measured)
  double keep_load = 1.10;     // planned load of a node to the mean: up to here sets stay,
  double fill_load = 1.05;     // up to here they come (both measured)
  // share of all load that moves in a tick after a node joined: -10 points of hit without
  double join_move_share = 0.02;
  // Homes fill at most this share of a node's KV. A set beyond has no home: at .5, which leaves room for the
  // conversations' own tokens, that costs 7..10 points of hit with eight gateways where personas are many
  // (measured). Conversations get their room all the same: the node evicts the least recently used.
  double kv_share = 1;
  // kStrict: number of sets that prefix keys are hashed into, and the most that a node is given. (Eight and
  // two were the best of the strict ones measured.)
  size_t strict_sets = 8;
  size_t max_sets_per_node = 2;
  size_t max_nodes_per_set = 0;  // 0: no limit; any mode
};

// Bounds of the router's memory.
struct MemoryOptions {
  size_t sets_max = 16'384;             // sets known; the least recently used is forgotten
  size_t placements_per_node = 32'768;  // sets and sessions held per node, likewise
  size_t outbox_max = 65'536;           // placements waiting to be sent to peers; the oldest are dropped
  // KV size assumed of a node that reports none: the bound of its resident placements.
  int64_t node_kv_tokens_guess = 1'000'000;
};

// Bounds of the learner of shared prefixes (shared_prefix_detector.h): some 15 MB with these.
struct SharedPrefixDetectorOptions {
  size_t anchors_max = 65'536;
  size_t sessions_max = 65'536;  // conversations, and ends of prompts, known to have begun
  Duration window = std::chrono::minutes(10);
};

struct RouterOptions {
  std::string policy = "affinity";  // see policy.h
  Hash128 name;                     // unique to this gateway's life among all that share the fleet
  // The table that counts is kept where all gateways see it (shared_table.h): a plan made here is a draft of
  // the next one there.
  bool shared_table = false;
  AffinityOptions affinity;
  PlannerOptions planner;
  MemoryOptions memory;
  SharedPrefixDetectorOptions sketch;
  size_t moves_at_once = 2;  // sets computed ahead of their requests (handover.h)
};

}  // namespace troupe::route
