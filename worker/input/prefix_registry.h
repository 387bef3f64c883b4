#pragma once

// Which prefixes a worker was asked to have ahead of use, and for how long it keeps which of them: the books
// behind POST /v1/prefixes (prefixes.h). Pins have a budget, in blocks of tokens, that counts every prefix
// whole: one whose beginning is another's counts that twice. What is only computed, not pinned, may be
// evicted like anything cached, so its entry is but a memory; when there are too many, the oldest goes.
//
// The same prefix may be asked for anew, also while it is being computed: what is asked last holds. Time
// comes in as an argument. Not thread-safe.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
    int32_t making_max = 16;  // at once
  };
  explicit PrefixRegistry(const Options& options) : options_(options) {}

  struct Ask {
    Hash128 hash, set;
    int64_t tokens = 0;
    bool pin = false;
    std::optional<Duration> ttl;
  };
  // Before it is computed: a pin has its part of the budget from here on. Then exactly one of the two below.
  // kFailedPrecondition: the budget does not suffice, or all that are kept are pinned; kResourceExhausted:
  // too many are being computed.
  Status begin(const Ask& ask);
  // Both say whether what is pinned under this hash is to be pinned no more.
  bool finish(const Ask& ask, int64_t cached_tokens, TimePoint now);
  bool abort(const Ask& ask);

  struct Entry {
    Ask ask;
    int64_t cached_tokens = 0;
    TimePoint made_at{};
    std::optional<TimePoint> expires;
    bool made = false;
    int32_t making = 0, making_pins = 0;  // asks under way

    bool is_pinned() const { return made && ask.pin; }
  };
  const Entry* find(Hash128 hash) const;  // null: there is none, or it is not computed yet
  std::vector<const Entry*> all() const;  // the oldest first
  enum class Erased : uint8_t { kUnknown, kUnpin, kNothingPinned };
  Erased erase(Hash128 hash);
  // Those whose time is over; they are erased, and to be pinned no more.
  std::vector<Hash128> take_expired(TimePoint now);
  std::optional<TimePoint> next_expiry() const;

  // Of all that are pinned or asked to be, in whole blocks.
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
