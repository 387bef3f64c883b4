#pragma once

// Results as one self-contained page: each policy's figures, as a table with every column explained in words,
// and plots over time: hit, time to first token, work of every node as a heat map, requests, with faults
// marked. For readers without the manual; no other file, no network.
//
// The page stays small however long the run and large the fleet: time is cut into at most kTimeBucketsMax
// pieces, nodes are joined into at most kNodeRowsMax rows.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/fleet/faults.h"
#include "sim/fleet/result.h"

namespace troupe::sim {

inline constexpr size_t kTimeBucketsMax = 240, kNodeRowsMax = 96;

// Facts that are not in the results.
struct PageFacts {
  std::string title;          // "compare: 8 nodes of study"
  std::string answer;         // to the command's question, a sentence; empty: the table is the answer
  std::string source;         // of the requests: "trace azure.csv"
  std::string command, made;  // the command line; "troupe-sim 0.1.0, 2026-03-01 12:34 UTC"
  bool live = false;          // measured, not simulated
  double warmup_s = 0, slo_ttft_ms = 0, slo_tpot_ms = 0;
  std::vector<Fault> faults;
  std::vector<LoadStep> steps;  // of the search for the sustainable rate, or for the nodes needed
};

// REQUIRES: at least one result. The same arguments give the same bytes.
std::string html_page(std::span<const Result> results, const PageFacts& facts);

}  // namespace troupe::sim
