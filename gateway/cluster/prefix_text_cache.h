#pragma once

// Cache of the shared prefixes' texts, so that a worker can be asked to compute one ahead (POST /v1/prefixes)
// before its requests come. Filled from passing requests, in memory alone, within a budget of bytes; the
// least recently used goes.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "gateway/route/key/prefix_key.h"

namespace troupe {

// The body of POST /v1/prefixes for the part of the request that belongs to its set; empty without one.
// REQUIRES: `key` is the request's.
std::string prefix_body(const GenerateRequest& request, const std::string& model,
                        const route::PrefixKey& key);

// Not thread-safe.
class PrefixTextCache {
 public:
  explicit PrefixTextCache(size_t bytes_max) : bytes_max_(bytes_max) {}

  struct Text {
    std::string model;
    std::string body;
    route::PrefixKey key;  // of the set alone: the input of append_hints()
  };
  // True: the set is cached, and now the most recently used.
  bool use(const Hash128& set);
  // Ignores a text that is too large: it would push out many.
  void put(const Hash128& set, Text text);
  const Text* find(const Hash128& set) const;  // null: not cached. Valid until the next put()
  std::vector<Hash128> sets_of(std::string_view model) const;
  size_t size() const { return index_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Hash128 set;
    Text text;
    size_t bytes = 0;
  };
  size_t bytes_max_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used first
  absl::flat_hash_map<Hash128, std::list<Entry>::iterator> index_;
};

}  // namespace troupe
