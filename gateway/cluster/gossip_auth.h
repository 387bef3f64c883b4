#pragma once

// Who knows the fleet's secret may tell gateways something (gossip.secret): a message carries a seal, the
// HMAC-SHA-256 of it and of its sender's name, and an answer one of it and of the message's seal. So neither
// is to be made up, nor an answer to be given twice. What is read on the way is TLS's to prevent.

#include <functional>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view kGossipAuthHeader = "x-troupe-gossip-seal";

class GossipAuth {
 public:
  // Of the secret and these bytes, what nobody can make without it; fit for a header.
  using KeyedHash = std::function<std::string(std::string_view bytes)>;
  GossipAuth() = default;  // nothing is sealed, and everything taken
  explicit GossipAuth(KeyedHash hash) : hash_(std::move(hash)) {}

  bool is_needed() const { return hash_ != nullptr; }
  // Empty where none is needed.
  std::string of_message(std::string_view sender, std::string_view message) const;
  std::string of_answer(std::string_view message_seal, std::string_view answer) const;
  // Where one is needed: in a time that does not tell where they differ.
  bool fits(std::string_view seal, std::string_view wanted) const;

 private:
  std::string of(std::string_view kind, std::string_view name, std::string_view bytes) const;

  KeyedHash hash_;
};

}  // namespace troupe
