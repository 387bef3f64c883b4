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

bool is_in(const std::vector<std::string>& names, std::string_view owner) {
  return std::find(names.begin(), names.end(), owner) != names.end();
}

}  // namespace

void PinOwners::add(const Hash128& prefix, std::string_view owner) {
  add_maker(prefix, owner);
  if (!is_name(owner)) return;
  std::vector<std::string>& pins = owners_[prefix].pins;
  if (!is_in(pins, owner) && pins.size() < kOwnersMax) pins.emplace_back(owner);
}

void PinOwners::made(const Hash128& prefix, std::string_view owner) {
  add_maker(prefix, owner);
  if (const auto found = owners_.find(prefix); found != owners_.end()) found->second.pins.clear();
}

void PinOwners::add_maker(const Hash128& prefix, std::string_view owner) {
  if (!is_name(owner)) return;
  std::vector<std::string>& makers = owners_[prefix].makers;
  std::erase(makers, owner);
  makers.emplace_back(owner);
  if (makers.size() > kOwnersMax) makers.erase(makers.begin());
}

PinOwners::Left PinOwners::remove(const Hash128& prefix, std::string_view owner) {
  const auto found = owners_.find(prefix);
  if (found == owners_.end()) return Left::kNone;
  Owners& owners = found->second;
  std::erase(owners.pins, owner);
  std::erase(owners.makers, owner);
  if (!owners.pins.empty()) return Left::kPinned;
  if (!owners.makers.empty()) return Left::kMade;
  owners_.erase(found);
  return Left::kNone;
}

void PinOwners::keep_only(absl::FunctionRef<State(const Hash128&)> state_of) {
  absl::erase_if(owners_, [&state_of](auto& entry) {
    const State state = state_of(entry.first);
    if (state != State::kPinned) entry.second.pins.clear();
    return state == State::kGone;
  });
}

const std::vector<std::string>& PinOwners::of(const Hash128& prefix) const {
  static const std::vector<std::string> kNone;
  const auto found = owners_.find(prefix);
  return found == owners_.end() ? kNone : found->second.pins;
}

bool PinOwners::may_see(const Hash128& prefix, std::string_view owner) const {
  if (owner.empty()) return true;
  const auto found = owners_.find(prefix);
  return found != owners_.end() && (is_in(found->second.pins, owner) || is_in(found->second.makers, owner));
}

}  // namespace troupe
