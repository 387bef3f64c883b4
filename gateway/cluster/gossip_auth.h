#pragma once

// Authenticates gossip with the fleet's secret (gossip.secret): a message carries a seal, the HMAC-SHA-256 of
// it, of its sender's name and of its stamp, and an answer one of it and of the message's seal. So neither
// can be forged. A stamp, the receiver's challenge and a count of the sender's, makes a message count once:
// another life of the receiver has another challenge, and the same life takes only counts that grow. No
// clocks are compared. A sender that does not know the challenge yet gets it (409) and sends again.
// Confidentiality is TLS's task.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "common/core/block_hash.h"

namespace troupe {

inline constexpr std::string_view kGossipAuthHeader = "x-troupe-gossip-seal";
inline constexpr std::string_view kGossipStampHeader = "x-troupe-gossip-stamp";

class GossipAuth {
 public:
  // A keyed hash of these bytes, which cannot be made without the secret; fit for a header.
  using KeyedHash = std::function<std::string(std::string_view bytes)>;
  GossipAuth() = default;  // messages are not sealed, and all are accepted
  explicit GossipAuth(KeyedHash hash) : hash_(std::move(hash)) {}

  bool is_needed() const { return hash_ != nullptr; }
  struct Message {
    std::string_view sender;
    std::string_view stamp;
    std::string_view bytes;
  };
  // Empty where no seal is needed.
  std::string of_message(const Message& message) const;
  std::string of_answer(std::string_view message_seal, std::string_view answer) const;
  // Compares seals where they are needed, in constant time.
  bool fits(std::string_view seal, std::string_view wanted) const;

 private:
  std::string of(std::initializer_list<std::string_view> lines, std::string_view bytes) const;

  KeyedHash hash_;
};

// "<challenge>/<count>"; the challenge is empty in a first message.
std::string gossip_stamp(std::string_view challenge, uint64_t count);

// The receiver's side of stamps. Not thread-safe.
class GossipFreshness {
 public:
  // `life`: names this life of the gateway and no other.
  explicit GossipFreshness(std::string life) : life_(std::move(life)) {}

  std::string challenge() const;
  // Takes the message for this challenge and above the sender's last count. REQUIRES: its seal is right.
  bool take(const Hash128& sender, std::string_view stamp);
  size_t senders() const { return last_.size(); }

 private:
  // Each life of a peer is a sender. Where there have been more, all are forgotten and the challenge changes.
  static constexpr size_t kSendersMax = 4096;

  std::string life_;
  uint64_t forgotten_ = 0;  // times
  absl::flat_hash_map<Hash128, uint64_t> last_;
};

}  // namespace troupe
