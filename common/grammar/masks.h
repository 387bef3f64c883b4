#pragma once

// The tokens that may follow in a configuration. A token within one of the configuration's terminals is known
// from the terminal's state alone (classify.h), which needs no parser; only the few in which a terminal ends
// are walked through the parser, and of most of those only the rest behind the terminal. What was found is
// kept by state and by configuration, within a bound of memory. Not thread-safe.

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/rules/earley.h"
#include "common/grammar/tokens/vocabulary.h"

namespace troupe::grammar {

class Masks {
 public:
  struct Options {
    size_t memory_bytes_max = 64u << 20;  // of what is kept; all of it is dropped when that is full
    bool keeps = true;                    // false: every mask is made anew, for tests and measurements
  };
  // Both must outlive this.
  Masks(Earley* earley, const Vocabulary* vocabulary, const Options& options);

  // Tokens that end answers are not in it. If the parser is exhausted by it, the result is not complete.
  std::shared_ptr<const TokenSet> mask(ConfigId config);

 private:
  // `band`: its index.
  std::shared_ptr<const StateTokens> tokens_of(uint32_t band, StateId state);
  StateTokens classify(uint32_t band, StateId state);
  bool allows_slice(uint32_t band, size_t slice, StateId state);
  std::shared_ptr<const Crossing> crossing_of(uint32_t band, const TokenTrie& trie, size_t slice,
                                              CrossingNodes nodes);
  std::vector<Thread> split(ConfigId config, TokenSet& out);
  void add_tokens(uint32_t band, const Thread& thread, TokenSet& out);
  void add_allowed(const TokenTrie& texts, ConfigId from, TokenSet& out);
  void keep(size_t bytes);

  Earley* earley_;
  const Vocabulary* vocabulary_;
  const Options options_;
  std::vector<std::vector<std::vector<uint8_t>>> samples_;  // by band and slice: bytes to try
  size_t memory_bytes_ = 0;
  absl::flat_hash_map<ConfigId, std::shared_ptr<const TokenSet>> masks_;
  absl::flat_hash_map<std::pair<uint32_t, StateId>, std::shared_ptr<const StateTokens>> states_;
  absl::flat_hash_map<std::pair<uint32_t, CrossingKey>, std::shared_ptr<const Crossing>> crossings_;
  std::vector<ConfigId> path_;  // scratch
};

}  // namespace troupe::grammar
