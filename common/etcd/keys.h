#pragma once

// The fleet's data in etcd, by key:
//
//   <prefix>/workers/<id>        WorkerRecord of a worker that accepts requests, under its lease
//   <prefix>/loads/<gateway>     requests that a gateway sent to each set, under its lease
//   <prefix>/gateways/<gateway>  GatewayRecord: the address at which other gateways reach it, under its lease
//   <prefix>/leader              name of the gateway that plans the table, under its lease
//   <prefix>/table               the table
//   <prefix>/pins/<prefix id>    a pinned prefix, under a lease of its own where it ends
//   (gateway/cluster/pin_record.h)
//   <prefix>/personas/<owner>/<name>  a published persona (gateway/persona/record.h)
//   <prefix>/accounts/<id>       what gateways were granted of a client's limits, under a lease of two days
//   (gateway/route/admission/account_record.h)

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
        table(prefix + "/table"),
        pins(prefix + "/pins/"),
        personas(prefix + "/personas/"),
        accounts(prefix + "/accounts/") {}
  std::string workers, loads, gateways, leader, table, pins, personas, accounts;
};
// Accepts "/something", printable, without a final "/". The error describes the fault but not its origin.
Status check_state_prefix(std::string_view prefix);

struct WorkerRecord {
  std::string url;  // as gateways reach it
  std::string model;
  std::string epoch;  // of its cache: a new epoch began empty
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
