// Answers of etcd, or of another program in its place: each answer as each kind, and a watch's stream however
// it is cut.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/base64.h"
#include "common/etcd/etcd_wire.h"
#include "common/etcd/keys.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string> lines_of(std::string_view text, size_t step, size_t line_bytes_max) {
  troupe::etcd::Lines lines(line_bytes_max);
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size(); at += step) {
    if (!lines.feed(text.substr(at, step)).ok()) break;
    for (std::string_view line; lines.next(line);) {
      require(!line.empty() && line.find('\n') == std::string_view::npos && line.size() <= line_bytes_max);
      all.emplace_back(line);
    }
  }
  return all;
}

void check_answers(std::string_view json) {
  if (const auto txn = troupe::etcd::parse_txn(json); txn.ok()) {
    require(txn->revision >= 0);
    for (const auto& kv : txn->found) require(kv.create_revision >= 0 && kv.mod_revision >= 0);
  }
  if (const auto lease = troupe::etcd::parse_grant(json); lease.ok()) require(lease->ttl.count() > 0);
  if (const auto lease = troupe::etcd::parse_keep_alive(json); lease.ok()) require(lease->ttl.count() >= 0);
  if (const auto watch = troupe::etcd::parse_watch(json); watch.ok()) {
    for (const auto& event : watch->events) require(event.kv.mod_revision >= 0);
  }
  (void)troupe::etcd::error_text(json);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_answers(text);
  const auto whole = lines_of(text, size + 1, size + 1);
  require(whole == lines_of(text, 1, size + 1) && whole == lines_of(text, 7, size + 1));
  lines_of(text, 3, 16);
  for (const std::string& line : whole) check_answers(line);
  if (const auto bytes = troupe::from_base64(text)) require(troupe::base64(*bytes) == text);
  require(troupe::from_base64(troupe::base64(text)) == std::string(text));
  if (const auto record = troupe::parse_worker_record(text); record.ok()) {
    const auto again = troupe::parse_worker_record(troupe::worker_record_json(*record));
    require(again.ok() && again->url == record->url && again->model == record->model &&
            again->epoch == record->epoch);
  }
  if (const auto record = troupe::parse_gateway_record(text); record.ok())
    require(*troupe::parse_gateway_record(troupe::gateway_record_json(*record)) == *record);
  return 0;
}
