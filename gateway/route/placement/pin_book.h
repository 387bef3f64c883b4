#pragma once

// The prefixes that clients have pinned through this gateway (POST /v1/prefixes): whose each is, until when,
// which nodes hold it in which life of their caches, and how to have it computed anew where none does any
// more. What one owner may pin is bounded, so that others can, too.
//
// Pure; not thread-safe.

#include <absl/container/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/time.h"
#include "gateway/route/fleet/view.h"
#include "gateway/route/key/prefix_key.h"

namespace troupe::route {

struct PinOptions {
  // Share of the KV memory of a worker that has its model, for one owner's pins. (A worker lets all of
  // them have a quarter, unless it is told otherwise.)
  double kv_share = 0.125;
  int64_t per_owner = 64;
  Duration ttl_max = std::chrono::hours(7 * 24);  // of an owner's pin; also of one that names none
  size_t text_bytes = size_t{64} << 20;           // of the requests to compute them anew, all together
};

struct Pin {
  struct Place {
    NodeIndex node = kNoNode;
    uint32_t life = 0;  // of its cache (NodeLoad::life)
  };
  Hash128 id;
  std::string owner;  // empty: the gateway has no keys
  std::string model;
  int64_t tokens = 0;
  std::string body;    // of the request that computes it, up to the value of
                       // `ttl_s`, its last member
  std::string answer;  // what the first worker said of it, as JSON
  PrefixKey key;       // of the set alone
  bool expires = false;
  TimePoint until{};
  std::vector<Place> places;
};

class PinBook {
 public:
  explicit PinBook(const PinOptions& options) : options_(options) {}
  void change(const PinOptions& options) { options_ = options; }
  const PinOptions& options() const { return options_; }

  // May the owner pin so many tokens more, of a model whose workers have so many (0: not known)? Empty: yes,
  // else what is in the way. A set that it has pinned already may be pinned again.
  struct Wish {
    std::string_view owner, model;
    Hash128 set;
    int64_t tokens = 0;
    int64_t kv_tokens = 0;
  };
  std::string refusal(const Wish& wish) const;
  // False: their requests have no room, and it is not kept.
  bool put(Pin pin);
  void erase(const Hash128& id);
  const Pin* find(const Hash128& id) const;                  // null: not pinned here
  std::vector<const Pin*> of(std::string_view owner) const;  // by id
  void expire(TimePoint now);
  size_t size() const { return pins_.size(); }
  size_t text_bytes() const { return text_bytes_; }

  // A pin that no node holds in this life of its cache: `holds(place)` says which do. Each is asked about in
  // turn. Null: none.
  template <typename Holds>
  const Pin* next_lost(Holds&& holds) {
    for (size_t i = 0; i < turns_.size(); ++i) {
      turns_.push_back(turns_.front());
      turns_.pop_front();
      Pin& pin = pins_.at(turns_.back());
      std::erase_if(pin.places, [&](const Pin::Place& place) { return !holds(place); });
      if (pin.places.empty()) return &pin;
    }
    return nullptr;
  }
  // It was computed there.
  void placed(const Hash128& id, Pin::Place place);

 private:
  PinOptions options_;
  absl::flat_hash_map<Hash128, Pin> pins_;
  std::deque<Hash128> turns_;
  size_t text_bytes_ = 0;
};

}  // namespace troupe::route
