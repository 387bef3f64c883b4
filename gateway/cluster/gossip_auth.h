#pragma once

// Authenticates gossip with the fleet's secret (gossip.secret): a message carries a seal, the HMAC-SHA-256 of
// it and of its sender's name, and an answer one of it and of the message's seal. So neither can be forged,
// and no answer replayed. Confidentiality is TLS's task.

#include <functional>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view kGossipAuthHeader = "x-troupe-gossip-seal";

class GossipAuth {
 public:
  // A keyed hash of these bytes, which cannot be made without the secret; fit for a header.
  using KeyedHash = std::function<std::string(std::string_view bytes)>;
  GossipAuth() = default;  // messages are not sealed, and all are accepted
  explicit GossipAuth(KeyedHash hash) : hash_(std::move(hash)) {}

  bool is_needed() const { return hash_ != nullptr; }
  // Empty where no seal is needed.
  std::string of_message(std::string_view sender, std::string_view message) const;
  std::string of_answer(std::string_view message_seal, std::string_view answer) const;
  // Compares seals where they are needed, in constant time.
  bool fits(std::string_view seal, std::string_view wanted) const;

 private:
  std::string of(std::string_view kind, std::string_view name, std::string_view bytes) const;

  KeyedHash hash_;
};

}  // namespace troupe
