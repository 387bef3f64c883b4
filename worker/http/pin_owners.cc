#include "worker/http/pin_owners.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace troupe {
namespace {

constexpr size_t kNameBytesMax = 128;

bool is_name(std::string_view owner) {
  return !owner.empty() && owner.size() <= kNameBytesMax &&
         std::all_of(owner.begin(), owner.end(), [](char c) { return absl::ascii_isalnum(c); });
}

}  // namespace

void PinOwners::add(const Hash128& prefix, std::string_view owner) {
  if (!is_name(owner)) return;
  std::vector<std::string>& owners = owners_[prefix];
  const bool known = std::find(owners.begin(), owners.end(), owner) != owners.end();
  if (!known && owners.size() < kOwnersMax) owners.emplace_back(owner);
}

bool PinOwners::remove(const Hash128& prefix, std::string_view owner) {
  const auto found = owners_.find(prefix);
  if (found == owners_.end()) return true;
  std::erase(found->second, owner);
  if (!found->second.empty()) return false;
  owners_.erase(found);
  return true;
}

void PinOwners::keep_only(absl::FunctionRef<bool(const Hash128&)> is_pinned) {
  absl::erase_if(owners_, [&is_pinned](const auto& entry) { return !is_pinned(entry.first); });
}

const std::vector<std::string>& PinOwners::of(const Hash128& prefix) const {
  static const std::vector<std::string> kNone;
  const auto found = owners_.find(prefix);
  return found == owners_.end() ? kNone : found->second;
}

bool PinOwners::may_see(const Hash128& prefix, std::string_view owner) const {
  const std::vector<std::string>& owners = of(prefix);
  return owner.empty() || owners.empty() || std::find(owners.begin(), owners.end(), owner) != owners.end();
}

}  // namespace troupe
