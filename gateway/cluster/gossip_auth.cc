#include "gateway/cluster/gossip_auth.h"

#include <openssl/crypto.h>

namespace troupe {

// Each part but the last ends with a newline: different parts never make the same bytes.
std::string GossipAuth::of(std::string_view kind, std::string_view name, std::string_view bytes) const {
  if (hash_ == nullptr) return "";
  std::string all;
  all.reserve(kind.size() + name.size() + bytes.size() + 2);
  for (const std::string_view line : {kind, name}) {
    all += line;
    all += '\n';
  }
  all += bytes;
  return hash_(all);
}

std::string GossipAuth::of_message(std::string_view sender, std::string_view message) const {
  return of("message", sender, message);
}

std::string GossipAuth::of_answer(std::string_view message_seal, std::string_view answer) const {
  return of("answer", message_seal, answer);
}

bool GossipAuth::fits(std::string_view seal, std::string_view wanted) const {
  if (hash_ == nullptr) return true;
  return seal.size() == wanted.size() && CRYPTO_memcmp(seal.data(), wanted.data(), seal.size()) == 0;
}

}  // namespace troupe
