#include "kernels/cuda/attention/cascade_gate.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/check.h"
#include "common/core/status.h"

namespace troupe::cuda {

namespace {

constexpr std::array<int32_t, 7> kKeys{64, 128, 256, 512, 1024, 2048, 4096};
// A smaller gain than clocks differ from launch to launch is none.
constexpr double kFaster = 0.97;
constexpr const char* kNeverText = "never";

bool is_faster(const CascadeSeconds& seconds, int32_t requests, int32_t keys) {
  const auto with = seconds(requests, keys, true), without = seconds(requests, keys, false);
  return with && without && *with <= kFaster * *without;
}

// The fewest of kKeys with which a cascade of so many requests is faster. Numbers of keys that a model has no
// room for are not timed.
int32_t fewest_keys(const CascadeSeconds& seconds, int32_t requests) {
  size_t end = kKeys.size();
  while (end > 0 && !seconds(requests, kKeys[end - 1], true)) --end;
  if (end == 0 || !is_faster(seconds, requests, kKeys[end - 1])) return CascadeGate::kNever;
  size_t begin = 0;  // from end - 1 on they are faster
  while (begin + 1 < end) {
    const size_t middle = (begin + end) / 2 - 1;
    if (is_faster(seconds, requests, kKeys[middle])) {
      end = middle + 1;
    } else {
      begin = middle + 1;
    }
  }
  return kKeys[begin];
}

}  // namespace

size_t CascadeGate::size_of(int32_t requests) {
  TROUPE_CHECK(requests >= kRequestsMin, std::to_string(requests) + " requests share nothing");
  const auto width = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(requests / kRequestsMin)));
  return std::min(width, kSizes) - 1;
}

CascadeGate CascadeGate::guessed() {
  CascadeGate gate;
  for (size_t size = 0; size < kSizes; ++size) gate.keys_min_[size] = requests_of(size) < 4 ? kNever : 256;
  return gate;
}

CascadeGate CascadeGate::always() {
  return {};
}

int32_t CascadeGate::keys_min() const {
  return *std::min_element(keys_min_.begin(), keys_min_.end());
}

std::string CascadeGate::text() const {
  std::string out;
  for (size_t size = 0; size < kSizes; ++size) {
    absl::StrAppend(&out, out.empty() ? "" : " ", requests_of(size), ":");
    if (keys_min_[size] == kNever) {
      absl::StrAppend(&out, kNeverText);
    } else {
      absl::StrAppend(&out, keys_min_[size]);
    }
  }
  return out;
}

std::optional<CascadeGate> CascadeGate::parse(std::string_view text) {
  CascadeGate gate;
  const std::vector<absl::string_view> parts = absl::StrSplit(to_absl(text), ' ');
  if (parts.size() != kSizes) return std::nullopt;
  for (size_t size = 0; size < kSizes; ++size) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(parts[size], absl::MaxSplits(':', 1));
    int32_t requests = 0, keys = kNever;
    if (!absl::SimpleAtoi(pair.first, &requests) || requests != requests_of(size)) return std::nullopt;
    if (pair.second != kNeverText && (!absl::SimpleAtoi(pair.second, &keys) || keys < 0)) return std::nullopt;
    gate.keys_min_[size] = keys;
  }
  return gate;
}

CascadeGate measure_cascade_gate(const CascadeSeconds& seconds) {
  CascadeGate gate;
  int32_t fewer = CascadeGate::kNever;  // of smaller groups
  for (size_t size = 0; size < CascadeGate::kSizes; ++size) {
    fewer = std::min(fewer, fewest_keys(seconds, CascadeGate::requests_of(size)));
    gate.keys_min(size) = fewer;
  }
  return gate;
}

}  // namespace troupe::cuda
