#include "gateway/cluster/gossip_auth.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "common/core/status.h"

namespace troupe {

// Each part but the last ends with a newline: different parts never make the same bytes.
std::string GossipAuth::of(std::initializer_list<std::string_view> lines, std::string_view bytes) const {
  if (hash_ == nullptr) return "";
  std::string all;
  for (const std::string_view line : lines) {
    all += line;
    all += '\n';
  }
  all += bytes;
  return hash_(all);
}

std::string GossipAuth::of_message(const Message& message) const {
  return of({"message", message.sender, message.stamp}, message.bytes);
}

std::string GossipAuth::of_answer(std::string_view message_seal, std::string_view answer) const {
  return of({"answer", message_seal}, answer);
}

bool GossipAuth::fits(std::string_view seal, std::string_view wanted) const {
  if (hash_ == nullptr) return true;
  return seal.size() == wanted.size() && CRYPTO_memcmp(seal.data(), wanted.data(), seal.size()) == 0;
}

std::string gossip_stamp(std::string_view challenge, uint64_t count) {
  return absl::StrCat(to_absl(challenge), "/", count);
}

std::string GossipFreshness::challenge() const {
  return absl::StrCat(life_, ".", forgotten_);
}

bool GossipFreshness::take(const Hash128& sender, std::string_view stamp) {
  const size_t slash = std::min(stamp.find('/'), stamp.size());
  uint64_t count = 0;
  if (stamp.substr(0, slash) != challenge()) return false;
  if (slash == stamp.size() || !absl::SimpleAtoi(to_absl(stamp.substr(slash + 1)), &count)) return false;
  if (last_.size() >= kSendersMax && !last_.contains(sender)) {
    last_.clear();
    ++forgotten_;
    return false;
  }
  uint64_t& last = last_[sender];
  if (count <= last) return false;
  last = count;
  return true;
}

}  // namespace troupe
