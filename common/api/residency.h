#pragma once

// A worker's reports about its KV cache, event by event: GET /v1/residency, both ways.
//
//   event: snapshot
//   data: {"epoch": "…", "seq": n, "sets": [{"set": hex, "tokens": n, "pinned": bool}],
//         "sessions": [{"session": hex, "tokens": n}]}
//
//   event: admitted, or evicted with the tokens that are left
//   data: {"epoch": "…", "seq": n, "set" or "session": hex, "tokens": n, "pinned": bool (of a set)}
//
// Tokens are resident from the prompt's first one on. seq grows by one with every change of an epoch (the
// first is 1); a snapshot carries the seq of the last change it includes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"
#include "common/core/block_hash.h"
#include "common/core/holder_kind.h"

namespace troupe {

struct ResidencyItem {
  HolderKind kind = HolderKind::kSet;
  Hash128 name;
  int64_t tokens = 0;
  bool pinned = false;  // of a set: part of it is never evicted
  bool operator==(const ResidencyItem&) const = default;
};

struct ResidencyEvent {
  enum class Kind : uint8_t { kSnapshot, kAdmitted, kEvicted };
  Kind kind = Kind::kSnapshot;
  std::string epoch;
  uint64_t seq = 0;
  std::vector<ResidencyItem> items;  // of a change: one
};

// Appends the event with its SSE framing. REQUIRES: an epoch without line breaks.
void append_residency_event(std::string& out, ResidencyEvent::Kind kind, std::string_view epoch, uint64_t seq,
                            std::span<const ResidencyItem> items);
// Parses `name` and `data` of one SSE event.
ApiResult<ResidencyEvent> parse_residency_event(std::string_view name, std::string_view data);

// Limit of an event's data: a worker of 65,536 blocks sends 4 MB at most.
inline constexpr size_t kResidencyEventBytesMax = 32u << 20;

}  // namespace troupe
