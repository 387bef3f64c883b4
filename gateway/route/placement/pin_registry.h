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
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <utility>
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
    uint32_t incarnation = 0;           // of its cache (NodeLoad::incarnation)
    TimePoint ends = TimePoint::max();  // the node was told so last, by whichever owner
  };
  // A node that held it when another gateway wrote so, in this life of its cache. It is a Place once that
  // life is found here.
  struct Claim {
    std::string node, cache_epoch;
  };
  Hash128 id;         // id_of()
  Hash128 prefix;     // its id at the workers
  std::string owner;  // ApiClient::owner(); empty: the gateway has no keys
  std::string model;
  int64_t tokens = 0;
  // The request that computes it, up to the value of `ttl_s`, its last member; where it is `salted`, up to
  // that of `cache_salt`, its last but one: the owner's, which is not kept.
  std::string body;
  bool salted = false;
  bool shared = false;  // other gateways may know of it
  // Known of a worker alone (pin_importer.h): it has no body, and cannot be computed anew.
  bool imported = false;
  std::string answer;  // what the first worker said of it, as JSON
  PrefixKey key;       // of the set alone
  bool expires = false;
  TimePoint until{};
  std::vector<Place> places;
  std::vector<Claim> claims;
  Hash128 content;  // of `body`; the registry's

  // Several owners may have the same prefix, each a pin of its own.
  static Hash128 id_of(const Hash128& prefix, std::string_view owner) { return chain_hash(prefix, owner); }
};

// Why a gateway's own pins change (those that another gateway changed are adopted and dropped).
enum class PinChange {
  kMade,     // by a client, or made to last longer
  kRemoved,  // by a client
  kPlaced,   // a worker computed it, or lost it
  kExpired,
};

class PinRegistry {
 public:
  explicit PinRegistry(const PinOptions& options) : options_(options) {}
  void change(const PinOptions& options) { options_ = options; }
  const PinOptions& options() const { return options_; }

  // May the owner pin so many tokens more, of a model whose workers have so many (0: not known)? Empty: yes,
  // else what is in the way. The very request of one of its pins may be made again.
  struct Wish {
    std::string_view owner, model;
    std::string_view body;  // Pin::body
    Hash128 set;            // one of its pins that was imported is made anew by this, and does not count
    int64_t tokens = 0;
    int64_t kv_tokens = 0;
  };
  std::string refusal(const Wish& wish) const;
  // Counts as one of the owner's pins while it lives: from refusal() to put() workers compute, and others
  // ask. REQUIRES: the registry outlives it.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(PinRegistry& registry, const Wish& wish);
    Reservation(Reservation&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)), at_(other.at_) {}
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { end(); }

   private:
    void end();
    PinRegistry* registry_ = nullptr;
    std::list<Pin>::iterator at_{};
  };
  // False: its request has no room, and it is not kept.
  bool put(Pin pin);
  void erase(const Hash128& id);
  // Called with what put(), erase(), placed(), unplace() and expire() have changed. Must not change the
  // registry.
  std::function<void(const Hash128&, PinChange)> on_change;
  // The same as put() and erase(), of what another gateway has changed.
  bool adopt(Pin pin);
  void drop(const Hash128& id);
  const Pin* find(const Hash128& id) const;  // null: not pinned here
  bool is_of_another(const Hash128& prefix, std::string_view owner) const;
  std::vector<const Pin*> of(std::string_view owner) const;  // by id
  std::vector<const Pin*> all() const;                       // likewise
  // Grows with every change of a pin that is not taken up, and of where it is.
  uint64_t changes() const { return changes_; }
  void expire(TimePoint now);
  void keep_alone(const Hash128& id);   // other gateways cannot know of it
  std::vector<Hash128> shared() const;  // ids of those that other gateways may know of
  size_t size() const { return pins_.size(); }
  size_t text_bytes() const { return text_bytes_; }

  // Makes places of the claims: `place_of(claim)` says where it holds, kNoNode: nowhere.
  template <typename PlaceOf>
  void settle_claims(PlaceOf&& place_of) {
    for (auto& [id, pin] : pins_) {
      for (const Pin::Claim& claim : std::exchange(pin.claims, {})) {
        const Pin::Place place = place_of(claim);
        if (place.node != kNoNode) pin.places.push_back(place);
      }
    }
  }
  // A pin that no node holds in this life of its cache: `holds(place)` says which do. Each is asked about in
  // turn. `mine(pin)`: it is not another gateway's to see to. Null: none.
  template <typename Holds, typename Mine>
  const Pin* next_lost(Holds&& holds, Mine&& mine) {
    for (size_t i = 0; i < turns_.size(); ++i) {
      turns_.push_back(turns_.front());
      turns_.pop_front();
      Pin& pin = pins_.at(turns_.back());
      std::erase_if(pin.places, [&](const Pin::Place& place) { return !holds(place); });
      if (pin.places.empty() && mine(std::as_const(pin))) return &pin;
    }
    return nullptr;
  }
  template <typename Holds>
  const Pin* next_lost(Holds&& holds) {
    return next_lost(holds, [](const Pin&) { return true; });
  }
  // It was computed there. False: it is no longer pinned.
  bool placed(const Hash128& id, Pin::Place place);
  // Workers hold it no more for those who have it pinned.
  void unplace(const Hash128& prefix);
  // A node was asked again to pin it: the last request says until when, for all its owners.
  void update_expiry(const Hash128& prefix, const Pin::Place& place);

 private:
  void notify(const Hash128& id, PinChange change) const {
    if (on_change) on_change(id, change);
  }
  // One owner may have a part of the room for requests.
  static constexpr size_t kOwnersOfText = 4;
  PinOptions options_;
  absl::flat_hash_map<Hash128, Pin> pins_;
  std::list<Pin> reserved_;
  std::deque<Hash128> turns_;
  size_t text_bytes_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace troupe::route
