#pragma once

// The prefixes a worker was asked to compute ahead of use, and how long it keeps each: the bookkeeping of
// POST /v1/prefixes (prefixes.h). Pins share a budget in blocks of tokens; each prefix counts in full, also
// the beginning it shares with another. A prefix that is only computed, not pinned, may be evicted like any
// cached block, so its entry is a mere record; beyond prefixes_max the oldest entry is dropped.
//
// A prefix may be asked for again, even while it is being computed: the last request wins. Time comes in as
// an argument. Not thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/api/prefix.h"
#include "common/core/status.h"
#include "common/core/time.h"

namespace troupe {

class PrefixRegistry {
 public:
  struct Options {
    int64_t pinned_tokens_max = 0;
    int32_t block_size = 16;
    size_t prefixes_max = 1024;
    int32_t making_max = 16;  // computed at once
  };
  explicit PrefixRegistry(const Options& options) : options_(options) {}

  struct Ask {
    Hash128 hash, set;
    int64_t tokens = 0;
    bool pin = false;
    std::optional<Duration> ttl;
  };
  // Called before the computation: a pin reserves its part of the budget now. Exactly one of finish() and
  // abort() follows. kFailedPrecondition: the budget does not suffice, or all kept prefixes are pinned;
  // kResourceExhausted: too many are being computed.
  Status begin(const Ask& ask);
  // Both return whether the engine must unpin what is pinned under this hash.
  bool finish(const Ask& ask, int64_t cached_tokens, TimePoint now);
  bool abort(const Ask& ask);

  struct Entry {
    Ask ask;
    int64_t cached_tokens = 0;
    TimePoint made_at{};
    std::optional<TimePoint> expires;
    bool made = false;
    int32_t making = 0, making_pins = 0;  // requests being computed

    bool is_pinned() const { return made && ask.pin; }
  };
  const Entry* find(Hash128 hash) const;  // null: unknown, or not computed yet
  std::vector<const Entry*> all() const;  // oldest first
  enum class Erased : uint8_t { kUnknown, kUnpin, kNothingPinned };
  Erased erase(Hash128 hash);
  // Keeps the record of a pinned one, without its time to live. Returns whether the engine must unpin.
  bool unpin(Hash128 hash);
  // Erases expired entries and returns the hashes to unpin.
  std::vector<Hash128> take_expired(TimePoint now);
  std::optional<TimePoint> next_expiry() const;
  // Erases the pinned entries whose KV is pinned no more, by `is_pinned`.
  void drop_lost(absl::FunctionRef<bool(Hash128)> is_pinned);

  // Tokens pinned or being computed for a pin, in whole blocks.
  int64_t pinned_tokens() const;
  const Options& options() const { return options_; }

 private:
  int64_t whole_blocks(int64_t tokens) const;
  Status check_budget(const Ask& ask) const;
  Status make_room();
  void drop_if_empty(Hash128 hash);

  const Options options_;
  absl::flat_hash_map<Hash128, Entry> entries_;
  int32_t making_count_ = 0;
};

}  // namespace troupe
