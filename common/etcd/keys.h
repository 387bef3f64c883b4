#pragma once

// What the programs of a fleet keep in etcd, and under which keys:
//
//   <prefix>/workers/<id>        a worker that takes requests, under its lease: WorkerRecord
//   <prefix>/loads/<gateway>     what a gateway sent of each set, under its lease
//   <prefix>/gateways/<gateway>  where others reach a gateway to tell it things, under its lease:
//   GatewayRecord <prefix>/leader              the gateway that plans the table, under its lease: its name
//   <prefix>/table               the table

#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

inline constexpr std::string_view kStatePrefix = "/troupe/v1";

struct StateKeys {
  explicit StateKeys(const std::string& prefix)
      : workers(prefix + "/workers/"),
        loads(prefix + "/loads/"),
        gateways(prefix + "/gateways/"),
        leader(prefix + "/leader"),
        table(prefix + "/table") {}
  std::string workers, loads, gateways, leader, table;
};
// "/something", printable, without a "/" at the end. The error says what is wrong, not where.
Status check_state_prefix(std::string_view prefix);

struct WorkerRecord {
  std::string url;  // where gateways reach it
  std::string model;
  std::string epoch;  // of its cache: another one began empty
  bool operator==(const WorkerRecord&) const = default;
};
std::string worker_record_json(const WorkerRecord& record);
// Unknown fields are ignored. The error names the field.
StatusOr<WorkerRecord> parse_worker_record(std::string_view json);

struct GatewayRecord {
  std::string url;  // of its metrics port
  bool operator==(const GatewayRecord&) const = default;
};
std::string gateway_record_json(const GatewayRecord& record);
StatusOr<GatewayRecord> parse_gateway_record(std::string_view json);  // likewise

}  // namespace troupe
