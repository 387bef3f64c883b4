#pragma once

// Faults and their times. A file of faults is JSON lines, as traces are:
//
// clang-format off
//   {"at_s": 60, "kill": 3}                            node 3 dies; its cache with it
//   {"at_s": 90, "return": 3}                          it comes back, empty
//   {"at_s": 100, "join": 2}                           two more nodes
//   {"at_s": 60, "drain": 3, "for_s": 30}              node 3 drains: its conversations and sets are
//                                                      computed elsewhere, its streams end, and it leaves;
//                                                      after 30 s at the latest
//   {"at_s": 60, "slow": 5, "factor": 2, "for_s": 30}  node 5 takes twice as long
//   {"at_s": 60, "stall": 5, "for_s": 2}               node 5 stands still, its connections open
//   {"at_s": 60, "lose_reports": 5, "for_s": 10}       no load reports from it
//   {"at_s": 60, "lose_residency": 5}                  one of its residency events is lost: a gap
//   {"at_s": 60, "restart_gateway": 0}                 a gateway forgets all it knew
// clang-format on
//
// Times count from the trace's begin. Nodes and gateways are numbered from 0. Empty lines are skipped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe::sim {

struct Fault {
  enum class Kind : uint8_t {
    kKill,
    kReturn,
    kJoin,
    kDrain,
    kSlow,
    kStall,
    kLoseReports,
    kLoseResidency,
    kRestartGateway
  };
  Kind kind = Kind::kKill;
  double at_s = 0;
  int32_t target = 0;     // node or gateway; kJoin: number of nodes
  double factor = 1;      // kSlow: >= 1
  double for_s = 0;       // kDrain, kSlow, kStall, kLoseReports: > 0
  std::string said_at{};  // "faults.jsonl:3"; empty: not from a file
};
std::string_view fault_name(Fault::Kind kind);

// Faults in order of time. Errors name file, line and key.
StatusOr<std::vector<Fault>> parse_faults(std::string_view lines, std::string_view file_name);
// Checks the faults, in this order, for a fleet of this size: targets exist, only a dead node returns, …
// Errors name file and line, where the faults come from one.
Status check_faults(const std::vector<Fault>& faults, int32_t nodes, int32_t gateways);

}  // namespace troupe::sim
