#include "gateway/route/admission/account.h"

#include <algorithm>

#include "gateway/route/admission/shard_limit.h"

namespace troupe::route {

namespace {

constexpr size_t kRequests = static_cast<size_t>(AccountLimit::kRequestsPerMinute);
constexpr size_t kMinute = static_cast<size_t>(AccountLimit::kTokensPerMinute);
constexpr size_t kDay = static_cast<size_t>(AccountLimit::kTokensPerDay);

// A client may say any number; sums of these stay within their type.
constexpr int64_t kTokensMax = 1'000'000'000;

int64_t amount_of(size_t window, int64_t tokens) {
  return window == kRequests ? 1 : std::clamp<int64_t>(tokens, 0, kTokensMax);
}

}  // namespace

std::string_view account_limit_name(AccountLimit limit) {
  switch (limit) {
    case AccountLimit::kRequestsPerMinute:
      return "requests_per_min";
    case AccountLimit::kTokensPerMinute:
      return "tokens_per_min";
    case AccountLimit::kTokensPerDay:
      return "tokens_per_day";
    case AccountLimit::kRequestsAtOnce:
      break;
  }
  return "requests_at_once";
}

int64_t limit_of(const AccountLimits& limits, size_t window) {
  if (window == kRequests) return limits.requests_per_min;
  return window == kMinute ? limits.tokens_per_min : limits.tokens_per_day;
}

int64_t window_seconds(size_t window) {
  return window == kDay ? 86'400 : 60;
}

void Account::advance(int64_t unix_ms) {
  for (WindowBudget& window : windows_) window.advance(unix_ms);
}

int64_t Account::capacity(const AccountTerms& terms, size_t window, int64_t unix_ms) const {
  const int64_t granted = windows_[window].granted();
  if (asks_store(terms, unix_ms)) return granted;
  return std::max(granted, share_of(limit_of(terms.limits, window), terms.place));
}

// Asks each window before any is held: a refused request has taken nothing.
Account::Answer Account::begin(const AccountTerms& terms, int64_t tokens, int64_t unix_ms) {
  advance(unix_ms);
  Answer answer;
  const int64_t at_once = share_of(terms.limits.requests_at_once, terms.place);
  if (at_once > 0 && running_ >= at_once)
    return {Answer::Kind::kRefused, AccountLimit::kRequestsAtOnce, kAtOnceRetryMs, {}};
  const bool asks = asks_store(terms, unix_ms) && unix_ms >= dry_until_ms_;
  for (size_t i = 0; i < kAccountWindows; ++i) {
    const int64_t limit = limit_of(terms.limits, i);
    if (limit <= 0) continue;
    const int64_t most = asks_store(terms, unix_ms) ? limit : capacity(terms, i, unix_ms);
    const int64_t needed = WindowBudget::needed(amount_of(i, tokens), most);
    // (One that takes nothing of a window may come where others have used more than there was.)
    if (needed <= 0 || windows_[i].taken() + needed <= capacity(terms, i, unix_ms)) continue;
    const int64_t ends_in_ms = windows_[i].ends_in_ms(unix_ms);
    const bool refused = !asks;
    if (refused) return {Answer::Kind::kRefused, static_cast<AccountLimit>(i), ends_in_ms, {}};
    if (answer.kind == Answer::Kind::kAsk) continue;
    answer = {Answer::Kind::kAsk, static_cast<AccountLimit>(i), ends_in_ms, {}};
  }
  if (answer.kind == Answer::Kind::kAsk) return answer;
  for (size_t i = 0; i < kAccountWindows; ++i)
    answer.hold.windows[i] = windows_[i].hold(amount_of(i, tokens));
  running_ += 1;
  return answer;
}

void Account::settle(const Hold& hold, int64_t tokens, int64_t unix_ms) {
  advance(unix_ms);
  running_ -= 1;
  for (size_t i = 0; i < kAccountWindows; ++i)
    windows_[i].settle(hold.windows[i], i == kRequests ? 1 : std::clamp<int64_t>(tokens, 0, kTokensMax));
}

void Account::withdraw(const Hold& hold, int64_t unix_ms) {
  advance(unix_ms);
  running_ -= 1;
  for (size_t i = 0; i < kAccountWindows; ++i) windows_[i].settle(hold.windows[i], 0);
}

AccountWant Account::want(const AccountTerms& terms, int64_t tokens, int64_t unix_ms) {
  advance(unix_ms);
  AccountWant want;
  for (size_t i = 0; i < kAccountWindows; ++i) {
    want.windows[i] = windows_[i].window();
    const int64_t limit = limit_of(terms.limits, i);
    if (limit <= 0) continue;
    const int64_t room = windows_[i].granted() - windows_[i].taken();
    want.over[i] = std::max<int64_t>(-room, 0);
    const int64_t needed = WindowBudget::needed(amount_of(i, tokens), limit);
    want.needed[i] = tokens < 0 ? 0 : std::max<int64_t>(needed - std::max<int64_t>(room, 0), 0);
  }
  return want;
}

bool Account::is_over(const AccountTerms& terms, int64_t unix_ms) {
  if (!asks_store(terms, unix_ms)) return false;
  const AccountWant wanted = want(terms, -1, unix_ms);
  return std::any_of(wanted.over.begin(), wanted.over.end(), [](int64_t over) { return over > 0; });
}

void Account::granted(const AccountGrant& grant, int64_t unix_ms) {
  advance(unix_ms);
  for (size_t i = 0; i < kAccountWindows; ++i)
    windows_[i].grant(grant.windows[i], grant.amounts[i], grant.left[i]);
}

AccountGrant Account::give_back(const AccountTerms& terms, int64_t unix_ms) {
  advance(unix_ms);
  AccountGrant back;
  if (!asks_store(terms, unix_ms)) return back;
  for (size_t i = 0; i < kAccountWindows; ++i) {
    WindowBudget& window = windows_[i];
    back.windows[i] = window.window();
    const int64_t room = window.granted() - window.taken();
    const int64_t kept = limit_of(terms.limits, i) / 8;
    if (limit_of(terms.limits, i) <= 0 || room <= 2 * kept) continue;
    back.amounts[i] = room - kept;
    window.grant(window.window(), -back.amounts[i], window.left_elsewhere() + back.amounts[i]);
  }
  return back;
}

Account::View Account::view(const AccountTerms& terms, size_t window, int64_t unix_ms) const {
  const int64_t limit = limit_of(terms.limits, window);
  if (limit <= 0) return {};
  const WindowBudget& budget = windows_[window];
  int64_t room = capacity(terms, window, unix_ms) - budget.taken();
  // (Nothing is known of the store before its first word in a window.)
  if (asks_store(terms, unix_ms)) room += budget.is_told() ? budget.left_elsewhere() : limit;
  return {limit, std::clamp<int64_t>(room, 0, limit), budget.ends_in_ms(unix_ms)};
}

Account::View Account::requests_view(const AccountTerms& terms, int64_t unix_ms) {
  advance(unix_ms);
  return view(terms, kRequests, unix_ms);
}

Account::View Account::tokens_view(const AccountTerms& terms, int64_t unix_ms) {
  advance(unix_ms);
  const View minute = view(terms, kMinute, unix_ms), day = view(terms, kDay, unix_ms);
  if (minute.limit == 0) return day;
  return day.limit > 0 && day.remaining < minute.remaining ? day : minute;
}

}  // namespace troupe::route
