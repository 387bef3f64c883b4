#pragma once

// Learns from traffic, chats and plain texts alike, where the shared part of a prompt ends: the set of a
// request is the deepest anchor of its chain that enough conversations have shared lately, and that is not
// shared by nearly all traffic. First guesses (the system messages) are wrong both ways: example dialogues
// after the card belong to the persona, a template line before it does not.
//
// A trie of anchors in bounded memory, the least recently used forgotten. Only the first request of a
// conversation counts, once for each of its anchors, so an anchor's count is of conversations, and their
// private histories are not read. Counts are of two windows, this one and the last. (A busy window also lasts
// until 512 conversations began in it: disuse is measured in busy windows, so a quiet night forgets nothing.)
// The counts give each anchor on a request's path its state:
//
// - shared: 3 conversations had it, and stays so until six busy windows have passed without a request that
//   has it. Then its state is forgotten; 3 conversations have to show it anew
// - followed: nearly all conversations that had the anchor before it had this one too: .9 of them, and until
//   it is fewer than .75. The end of such a run, not its beginning, names a set
// - trunk: the conversations that continue from it share something large again, but at least two different
//   things: a template before personas. It keys no set; what follows it is looked at as if it began there
// - slight: less than an eighth of what its conversations begin with: not worth a set of its own (the one
//   block that all prompts of a trace share). It keys no set either, except as system messages
//
// The set is the end of the run that begins after the last trunk. Text that follows it by less than 256
// bytes, or that not nearly all share (a popular first question), never splits a set. A request that leaves
// the known paths at a trunk, or matches none, keeps its first guess; without one it has no set.
//
// A shallower anchor's conversations before a deeper one was first seen do not count against the deeper one
// (an edit shows as soon as three conversations have it). A state changes only on evidence (8 conversations,
// with separate thresholds), so keys do not flap. Nothing here depends on the order of a hash map, and an
// anchor's name is its hash: gateways that see different requests of the same kind name the same.

#include <absl/container/inlined_vector.h>

#include <cstdint>

#include "common/core/lru_map.h"
#include "common/core/time.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/route/options.h"

namespace troupe::route {

// Not thread-safe.
class SharedPrefixDetector {
 public:
  explicit SharedPrefixDetector(const SharedPrefixDetectorOptions& options);

  // Names the set of a request by what was learned (sets key.set and its lengths; a session named by the
  // first user turn moves behind them). Read-only, may be repeated. Keys without anchors stay.
  void refine(PrefixKey& key) const;
  // A request was sent.
  void learn(const PrefixKey& key, TimePoint now);

  size_t anchors() const { return entries_.size(); }
  // Greatest size of the state, by its bounds.
  size_t bytes_max() const;

 private:
  struct Count {  // conversations in this window and the last
    uint32_t now = 0, before = 0;
    uint32_t sum() const { return now + before; }
  };
  struct Entry {
    uint32_t window = 0;
    Count sessions;
    Count covered;                     // of them, those that share something large below here
    Count not_seen;                    // of the anchor before, when this was first seen
    Count prompts;                     // lengths of those conversations' first prompts, in units of 64 bytes
    uint64_t ways[2] = {0, 0};         // the last two different next anchors of the covered ones
    uint32_t way_windows[2] = {0, 0};  // when they were seen
    // Conversations whose first guess, below here, was the same in the next turn, less those where it was
    // not.
    int8_t guess_kept = 0;
    bool shared = false;
    bool followed = false;
    bool trunk = false;
    bool slight = false;
    uint16_t used = 0;  // in this busy window, counted modulo 2^16
  };
  struct Known {            // for a conversation's name, or for the last anchor of a prompt
    int64_t length = 0;     // prompt length
    uint32_t extended = 0;  // prompts seen that go on from there
  };
  struct Step {  // a remembered anchor of the request
    size_t anchor = 0;
    int64_t length = 0;
    const Entry* entry = nullptr;
  };
  using Path = absl::InlinedVector<Step, 32>;

  uint32_t window_of(TimePoint now) const;
  void began(TimePoint now);
  // It may still be in memory, but is evidence of nothing.
  bool lapsed(const Entry& entry) const;
  Path path_of(const PrefixKey& key) const;
  bool begins(const PrefixKey& key);
  void count(const PrefixKey& key, uint32_t window);
  static void cover(Entry& entry, uint64_t way, uint32_t window);
  static void judge_weight(Entry& entry, int64_t length);
  void see_again(const PrefixKey& key);
  // Number of the chain's anchors that form the set's prefix; 0: no set.
  size_t prefix_anchors(const PrefixKey& key, const Path& path) const;

  SharedPrefixDetectorOptions options_;
  LruMap<Entry> entries_;
  LruMap<Known> known_;
  uint16_t busy_ = 0;        // busy windows so far, modulo 2^16
  uint32_t busy_began_ = 0;  // conversations in this one
  TimePoint busy_since_{};
};

}  // namespace troupe::route
