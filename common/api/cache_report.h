#pragma once

// How much of a worker's KV memory its prefix cache holds: in GET /v1/load, beside the members of LoadReport.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/api/api.h"

namespace troupe {

struct CacheReport {
  int64_t kv_blocks_cached = -1;  // of LoadReport::kv_blocks_free, those that hold KV; below 0: not reported
};
std::string load_report_json(const LoadReport& report, const CacheReport& cache);
// The report, and in `cache` what is beside it: a member that is missing, or no count, stays unknown.
ApiResult<LoadReport> parse_load_report(std::string_view body, CacheReport& cache);

}  // namespace troupe
