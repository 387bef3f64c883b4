#include "gateway/proxy/accounts.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/net/timer.h"
#include "common/settings/schema.h"
#include "gateway/access/end_user.h"

namespace troupe {

using route::Account;
using route::AccountLimit;

namespace {

// The store is asked so often for one request: others of the same account may be faster.
constexpr int kAsksMax = 4;
constexpr int64_t kStoreAwayMs = 1000, kStoreDryMs = 100;
// How long, and how often, one looks for what another request of its account has got.
constexpr Duration kForOther = std::chrono::milliseconds(250), kLook = std::chrono::milliseconds(2);

// A name of a set, for as long as this lives; of another's it takes none away.
class Named {
 public:
  Named(absl::flat_hash_set<Hash128>& names, const Hash128& name)
      : names_(names), name_(name), is_own_(names.insert(name).second) {}
  ~Named() {
    if (is_own_) names_.erase(name_);
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

 private:
  absl::flat_hash_set<Hash128>& names_;
  const Hash128 name_;
  const bool is_own_;
};

int64_t unix_ms_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int64_t seconds_up(int64_t ms) {
  return std::max<int64_t>((ms + 999) / 1000, 1);
}

std::string_view words_of(AccountLimit limit) {
  switch (limit) {
    case AccountLimit::kRequestsPerMinute:
      return "requests a minute";
    case AccountLimit::kTokensPerMinute:
      return "tokens a minute";
    case AccountLimit::kTokensPerDay:
      return "tokens a day";
    case AccountLimit::kRequestsAtOnce:
      break;
  }
  return "requests at once";
}

int64_t number_of(const route::AccountLimits& limits, AccountLimit limit) {
  if (limit == AccountLimit::kRequestsAtOnce) return limits.requests_at_once;
  return route::limit_of(limits, static_cast<size_t>(limit));
}

ApiError over(bool of_end_user, const route::AccountLimits& limits, const Account::Answer& answer) {
  const int64_t seconds = seconds_up(answer.wait_ms);
  ApiError error = ApiError::overloaded(
      absl::StrCat("this ", of_end_user ? "end user" : "API key", " is over its limit of ",
                   number_of(limits, answer.limit), " ", to_absl(words_of(answer.limit)), " (",
                   to_absl(route::account_limit_name(answer.limit)), "); ask again in ", seconds, " s"),
      static_cast<int>(seconds));
  error.code = answer.limit == AccountLimit::kTokensPerDay ? "budget_exceeded" : "rate_limit_exceeded";
  return error;
}

void append(HeaderList& headers, const char* what, const Account::View& view) {
  if (view.limit <= 0) return;
  headers.emplace_back(absl::StrCat("x-ratelimit-limit-", what), std::to_string(view.limit));
  headers.emplace_back(absl::StrCat("x-ratelimit-remaining-", what), std::to_string(view.remaining));
  headers.emplace_back(absl::StrCat("x-ratelimit-reset-", what),
                       absl::StrCat(seconds_up(view.reset_ms), "s"));
}

void tighten(Account::View& view, const Account::View& other) {
  if (other.limit > 0 && (view.limit <= 0 || other.remaining < view.remaining)) view = other;
}

}  // namespace

void describe(SettingsSchema& schema, AccountOptions& options) {
  schema
      .add("accounts.user_header", &options.user_header,
           "header that names the end user of a request, beside those that LiteLLM's clients send")
      .live();
  schema.add("accounts.users", &options.users_max, "end users whose use is remembered; the oldest go")
      .range(1, 1e8)
      .live();
  route::AccountLimits& user = options.end_user;
  schema
      .add("accounts.end_user.requests_per_min", &user.requests_per_min,
           "of each end user, in minutes of the clock; keys may have others. 0: no limit")
      .range(0, 1e9)
      .live();
  schema.add("accounts.end_user.tokens_per_min", &user.tokens_per_min, "likewise, of prompts and answers")
      .range(0, 1e12)
      .unit("tokens")
      .live();
  schema.add("accounts.end_user.tokens_per_day", &user.tokens_per_day, "likewise, in days of UTC")
      .range(0, 1e15)
      .unit("tokens")
      .live();
  schema.add("accounts.end_user.requests_at_once", &user.requests_at_once, "of each end user, on their way")
      .range(0, 1e6)
      .live();
}

Accounts::Accounts(const AccountOptions& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      keys_(2 * kApiKeysMax),
      users_(options.users_max),
      users_gauge_(parts.metrics.gauge("troupe_gateway_end_users", "End users whose use is remembered.")),
      forgotten_(
          parts.metrics.counter("troupe_gateway_end_users_forgotten_total",
                                "End users whose use was forgotten for want of room (accounts.users).")) {
  for (size_t of = 0; of < refused_.size(); ++of) {
    for (size_t limit = 0; limit <= route::kAccountWindows; ++limit) {
      refused_[of][limit] = &parts.metrics.counter(
          "troupe_gateway_account_refused_total",
          "Requests over a limit of their key or end user in a window of time, by which.",
          {{"of", of == Visit::kKey ? "key" : "end_user"},
           {"limit", std::string(route::account_limit_name(static_cast<AccountLimit>(limit)))}});
    }
  }
}

void Accounts::change(const AccountOptions& options) {
  options_ = options;
  users_.change(options.users_max);
}

std::unique_ptr<Accounts::Visit> Accounts::visit(std::shared_ptr<ApiClient> client, std::string_view end_user,
                                                 const SpentTokens& spent) {
  const bool of_key = client != nullptr && client->account().any();
  const bool has_bucket = client != nullptr && client->tokens(TimePoint{}).limit > 0;
  route::AccountLimits user;
  if (!end_user.empty()) user = client == nullptr ? options_.end_user : client->end_user(options_.end_user);
  if (!of_key && !user.any() && !has_bucket) return nullptr;
  std::unique_ptr<Visit> visit(new Visit(*this, spent));
  const std::string_view key = client == nullptr ? std::string_view() : client->name();
  if (of_key) {
    const Hash128 id = chain_hash(hash_bytes("key"), key);
    visit->sides_[Visit::kKey] = {id, terms(client->account()), {}, true, false};
  }
  if (user.any()) visit->sides_[Visit::kEndUser] = {end_user_id(key, end_user), terms(user), {}, true, false};
  visit->client_ = std::move(client);
  return visit;
}

Accounts::Visit::~Visit() {
  for (size_t of = 0; of < sides_.size(); ++of)
    if (sides_[of].held) accounts_.settle(of, sides_[of], spent_.total());
}

// (Of a request that is refused by the second account the first has taken nothing.)
Task<ApiResult<bool>> Accounts::arrive(Visit& visit, int64_t tokens) {
  for (size_t of = 0; of < visit.sides_.size(); ++of) {
    Visit::Side& side = visit.sides_[of];
    if (!side.concerned) continue;
    const Account::Answer answer = co_await begin(of, side, tokens);
    if (answer.kind == Account::Answer::Kind::kAdmitted) {
      side.hold = answer.hold;
      side.held = true;
      continue;
    }
    refused_[of][static_cast<size_t>(answer.limit)]->Increment();
    for (size_t before = 0; before < of; ++before) {
      Visit::Side& taken = visit.sides_[before];
      if (taken.held) book(before).use(taken.id).withdraw(taken.hold, unix_ms_now());
      taken.held = false;
    }
    co_return over(of == Visit::kEndUser, side.terms.limits, answer);
  }
  users_gauge_.Set(static_cast<double>(users_.size()));
  forgotten_.Increment(static_cast<double>(users_.forgotten() - forgotten_shown_));
  forgotten_shown_ = users_.forgotten();
  co_return true;
}

// One request of an account asks the store, and the others wait for its slice: all at once would stand in
// each other's way there, and take more than they need from other gateways.
Task<Account::Answer> Accounts::begin(size_t of, Visit::Side& side, int64_t tokens) {
  Account::Answer answer = book(of).use(side.id).begin(side.terms, tokens, unix_ms_now());
  if (answer.kind == Account::Answer::Kind::kAsk && asking_.contains(side.id)) {
    Timer timer(parts_.executor);
    const TimePoint until = std::chrono::steady_clock::now() + kForOther;
    while (answer.kind == Account::Answer::Kind::kAsk && asking_.contains(side.id) &&
           std::chrono::steady_clock::now() < until) {
      timer.expires_after(kLook);
      co_await timer.async_wait(use_task);
      answer = book(of).use(side.id).begin(side.terms, tokens, unix_ms_now());
    }
  }
  if (answer.kind != Account::Answer::Kind::kAsk) co_return answer;
  const Named asks_now(asking_, side.id);
  for (int asks = 0; answer.kind == Account::Answer::Kind::kAsk; ++asks) {
    const route::AccountWant want = book(of).use(side.id).want(side.terms, tokens, unix_ms_now());
    const auto grant = co_await parts_.store->take(side.id, want, side.terms.limits, side.terms.place.of);
    const int64_t now = unix_ms_now();
    Account& account = book(of).use(side.id);
    if (grant.ok()) {
      account.granted(*grant, now);
    } else {
      account.store_is_away(now + kStoreAwayMs);
    }
    answer = account.begin(side.terms, tokens, now);
    // (Others of the account may have used what was granted for this one.)
    const bool got_some = grant.ok() && grant->amounts != want.over && asks + 1 < kAsksMax;
    if (answer.kind != Account::Answer::Kind::kAsk || got_some) continue;
    account.store_is_dry(now + kStoreDryMs);
    answer = account.begin(side.terms, tokens, now);
  }
  co_return answer;
}

void Accounts::settle(size_t of, Visit::Side& side, int64_t tokens) {
  const int64_t now = unix_ms_now();
  Account* const account = book(of).find(side.id);  // (it is there while requests of it run)
  if (account == nullptr) return;
  account->settle(side.hold, tokens, now);
  if (parts_.store != nullptr) parts_.background.spawn(tell_store(of, side.id, side.terms));
}

// Tells what was used beyond the grants, or gives back what is granted and not needed.
Task<void> Accounts::tell_store(size_t of, Hash128 id, route::AccountTerms terms) {
  Account* account = book(of).find(id);
  if (account == nullptr) co_return;
  const int64_t now = unix_ms_now();
  if (account->is_over(terms, now)) {
    const route::AccountWant want = account->want(terms, -1, now);
    const auto grant = co_await parts_.store->take(id, want, terms.limits, terms.place.of);
    account = book(of).find(id);
    if (grant.ok() && account != nullptr) account->granted(*grant, unix_ms_now());
    co_return;
  }
  const route::AccountGrant back = account->give_back(terms, now);
  if (back.amounts != route::AccountAmounts{}) co_await parts_.store->give_back(id, back);
}

void Accounts::append_headers(Visit& visit, TimePoint now, HeaderList& headers) {
  const int64_t unix_ms = unix_ms_now();
  Account::View requests, tokens;
  for (size_t of = 0; of < visit.sides_.size(); ++of) {
    const Visit::Side& side = visit.sides_[of];
    if (!side.concerned) continue;
    Account& account = book(of).use(side.id);
    tighten(requests, account.requests_view(side.terms, unix_ms));
    tighten(tokens, account.tokens_view(side.terms, unix_ms));
  }
  if (visit.client_ != nullptr) {
    const route::Quota::View bucket = visit.client_->tokens(now);
    const int64_t full_in_ms = std::chrono::ceil<std::chrono::milliseconds>(bucket.full_in).count();
    tighten(tokens, {bucket.limit, bucket.remaining, full_in_ms});
  }
  append(headers, "requests", requests);
  append(headers, "tokens", tokens);
}

}  // namespace troupe
