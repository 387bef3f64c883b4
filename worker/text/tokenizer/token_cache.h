#pragma once

// Caches texts that repeatedly encode to the same tokens: a persona's card is encoded for every request of
// every user, and is most of the text.
//
// Exact by construction: an added token ("<|im_end|>") cuts the text before every other stage, so the ids of
// a stretch between two of them depend on the stretch alone (and on whether it begins the text). The cache
// keeps those stretches. A text without added tokens, or the open end after the last one, is looked up in
// parts if the model's words allow it (word_cuts.h), all but the last. Belongs to one tokenizer; thread-safe.

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/mutex.h"
#include "common/core/status.h"

namespace troupe {

class TokenCache {
 public:
  struct Options {
    size_t bytes_max = 16u << 20;       // of all entries; the least recently used goes first
    size_t entry_bytes_max = 2u << 20;  // a larger entry is not kept
    size_t text_bytes_min = 128;        // shorter texts encode as fast as a look-up
    size_t part_bytes_min = 512;        // size of the parts of an open stretch
  };
  // Everything that a stretch's ids depend on besides its bytes:
  struct Key {
    uint8_t stage = 0;   // the tokenizer's stage that cut it
    bool first = false;  // it begins the whole text
    std::string_view text;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.stage, key.first, key.text);
    }
  };
  struct Stats {
    uint64_t lookups = 0;
    uint64_t hits = 0;
    size_t bytes = 0;
  };

  TokenCache() : TokenCache(Options()) {}
  explicit TokenCache(const Options& options) : options_(options) {}

  size_t part_bytes_min() const { return options_.part_bytes_min; }
  bool is_worth(std::string_view text) const { return text.size() >= options_.text_bytes_min; }
  // Appends the stretch's ids; false if they are not cached.
  bool append(const Key& key, std::vector<int32_t>& ids);
  void put(const Key& key, std::vector<int32_t> ids);
  Stats stats() const;

  // Appends the stretch's ids, cached or from `encode()`, which are then cached. Only a stretch that ends at
  // an added token (`closed`) is kept; `cache` may be null.
  template <typename Encode>
  static Status encode_once(TokenCache* cache, const Key& key, bool closed, std::vector<int32_t>& ids,
                            Encode encode) {
    if (cache == nullptr || !closed || !cache->is_worth(key.text)) return encode();
    if (cache->append(key, ids)) return {};
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    TROUPE_RETURN_IF_ERROR(encode());
    cache->put(key, {ids.begin() + begin, ids.end()});
    return {};
  }

 private:
  struct Entry {
    std::string text;
    std::vector<int32_t> ids;
    Key key;  // refers to this entry's text
    size_t bytes = 0;
  };

  const Options options_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe
