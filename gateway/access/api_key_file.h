#pragma once

// The file of API keys: names, digests, limits. It holds only the SHA-256 of a key, so its readers cannot use
// one:
//
// clang-format off
//   writers:                   # the name: in metrics and logs, no secret
//     sha256: "9f86d0…"        # printf %s "$KEY" | sha256sum
//     models: [demo-model]     # empty or absent: all
//     requests_per_s: 20       # 0 or absent: no limit
//     tokens_per_min: 600000   # of prompts and answers
//     requests_at_once: 64     # at the workers or waiting for them
//     priority: 0              # lower is earlier; requests may ask for a later one
//     weight: 1                # its share where not all can be served at once
//     requests_running: 32     # at the workers; more wait
//     tokens_running: 100000   # likewise, in tokens to compute
//     requests_waiting: 16
//     tenant: acme             # keys of a tenant share KV cache with no others (tenant.h)
//     requests_per_min: 600    # in minutes of the clock, exact over gateways that share etcd (account.h)
//     tokens_per_day: 5000000  # in days of UTC, likewise
//     end_user:                # of each end user of this key; absent: as `accounts.end_user` says
//       requests_per_min: 20   # 0: no limit; likewise tokens_per_min, tokens_per_day, requests_at_once
//     admin: true              # may change the fleet at the metrics port, too (admin.h)
// clang-format on

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "gateway/route/admission/account.h"
#include "gateway/route/admission/key_usage.h"

namespace troupe {

inline constexpr size_t kApiKeysMax = 1000;

using Sha256 = std::array<uint8_t, 32>;

struct ApiKey {
  std::string name;
  Sha256 digest{};
  std::vector<std::string> models;  // empty: all
  route::KeyRights rights;
  route::AccountLimits account;                   // in windows of time
  route::AccountLimits end_user{-1, -1, -1, -1};  // of each of its end users; negative: the gateway's default
  std::string tenant;                             // empty: none
  bool admin = false;
};
// Keys in the file's order. Errors: "<file>:<line>: …" or "<file>: key '<name>': …".
StatusOr<std::vector<ApiKey>> parse_api_keys(std::string_view yaml, const std::string& file_name);
StatusOr<std::vector<ApiKey>> read_api_keys(const std::string& path);
// The error names a key whose tenant would have no salt. `secret`: read_secret()'s, or empty.
Status check_tenants(const std::vector<ApiKey>& keys, std::string_view secret);

}  // namespace troupe
