#include "gateway/route/admission/account_book.h"

#include <iterator>

namespace troupe::route {

namespace {

// Looked at in one call, from the oldest on: the rest are left to the next one.
constexpr int kLooksMax = 16;

}  // namespace

Account& AccountBook::use(const Hash128& id) {
  const auto known = accounts_.find(id);
  if (known != accounts_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->account;
  }
  auto oldest = entries_.end();
  for (int looks = 0; accounts_.size() >= accounts_max_ && oldest != entries_.begin() && looks < kLooksMax;
       ++looks) {
    --oldest;
    if (oldest->account.running() > 0) continue;
    accounts_.erase(oldest->id);
    oldest = entries_.erase(oldest);
    forgotten_ += 1;
  }
  entries_.push_front({id, {}});
  accounts_.emplace(id, entries_.begin());
  return entries_.front().account;
}

Account* AccountBook::find(const Hash128& id) {
  const auto known = accounts_.find(id);
  return known == accounts_.end() ? nullptr : &known->second->account;
}

}  // namespace troupe::route
