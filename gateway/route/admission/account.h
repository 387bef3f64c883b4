#pragma once

// The account of one API key, or of one end user of it, what it may use and has used: requests and tokens a
// minute, tokens a day, requests at once. A request is let in with an estimate of its tokens and settles by
// what it has used.
//
// Several gateways: each enforces its part of every limit, which never adds up to more than the limit. Where
// they share a store (AccountTerms::leased), a gateway's capacity is what the store has granted it instead
// (account_record.h), so that all together let in the limit exactly, however uneven their traffic is;
// requests at once stay divided. A store that does not answer: the part again, less what others may have been
// granted before. (Their sum in such a window is below twice the limit.)
//
// Sans-io: time is an argument, in milliseconds of unix time. Not thread-safe.

#include <array>
#include <cstdint>
#include <string_view>

#include "gateway/route/admission/window_budget.h"
#include "gateway/route/fleet/gateway_shard.h"

namespace troupe::route {

struct AccountLimits {  // 0: no limit
  int64_t requests_per_min = 0;
  int64_t tokens_per_min = 0;
  int64_t tokens_per_day = 0;
  int64_t requests_at_once = 0;
  bool any() const { return requests_per_min + tokens_per_min + tokens_per_day + requests_at_once > 0; }
  bool operator==(const AccountLimits&) const = default;
};

// The first three are windows, by which arrays are indexed.
enum class AccountLimit : uint8_t { kRequestsPerMinute, kTokensPerMinute, kTokensPerDay, kRequestsAtOnce };
inline constexpr size_t kAccountWindows = 3;
// As in settings, and in metrics.
std::string_view account_limit_name(AccountLimit limit);

struct AccountTerms {
  AccountLimits limits;
  GatewayShard place;   // of this gateway among those that enforce the limits
  bool leased = false;  // the store grants what may be used
};
int64_t limit_of(const AccountLimits& limits, size_t window);
int64_t window_seconds(size_t window);

// By window.
using AccountAmounts = std::array<int64_t, kAccountWindows>;

// Asked of the store, and its answer.
struct AccountWant {
  AccountAmounts windows{};  // their numbers
  AccountAmounts needed{};   // all or nothing
  AccountAmounts over{};     // was used beyond what was granted, and is to be counted in any case
};
struct AccountGrant {
  AccountAmounts windows{};
  AccountAmounts amounts{};
  AccountAmounts left{};  // there
};

class Account {
 public:
  struct Hold {
    std::array<WindowBudget::Hold, kAccountWindows> windows;
  };
  struct Answer {
    enum class Kind : uint8_t {
      kAdmitted,  // settle() must follow, once
      kRefused,   // by `limit`
      kAsk,       // the store, for want(); then begin() again
    };
    Kind kind = Kind::kAdmitted;
    AccountLimit limit = AccountLimit::kRequestsPerMinute;
    int64_t wait_ms = 0;  // until there may be room again: a window's end; of requests at once a guess
    Hold hold;
  };
  // `tokens`: about; 0: it takes none, and no limit of tokens concerns it.
  Answer begin(const AccountTerms& terms, int64_t tokens, int64_t unix_ms);
  void settle(const Hold& hold, int64_t tokens, int64_t unix_ms);
  // Instead of settle(): the request was refused elsewhere, and counts nowhere.
  void withdraw(const Hold& hold, int64_t unix_ms);

  // A request with this estimate of tokens needs this, for what is not granted yet.
  AccountWant want(const AccountTerms& terms, int64_t tokens, int64_t unix_ms);
  // More was used than granted, which the store does not know.
  bool is_over(const AccountTerms& terms, int64_t unix_ms);
  void granted(const AccountGrant& grant, int64_t unix_ms);
  // Takes back what is granted and of no use here for now, beyond an eighth of the limit: the caller gives it
  // to the store, or it is lost for this window. All zeroes: nothing.
  AccountGrant give_back(const AccountTerms& terms, int64_t unix_ms);
  // The store did not answer: until then begin() does without.
  void store_is_away(int64_t until_unix_ms) { away_until_ms_ = until_unix_ms; }
  // The store had nothing left: asked again no sooner than then.
  void store_is_dry(int64_t until_unix_ms) { dry_until_ms_ = until_unix_ms; }

  int64_t running() const { return running_; }

  // For x-ratelimit-*: of the limit of requests, or of the tighter one of tokens.
  struct View {
    int64_t limit = 0;  // 0: there is none
    int64_t remaining = 0;
    int64_t reset_ms = 0;
  };
  View requests_view(const AccountTerms& terms, int64_t unix_ms);
  View tokens_view(const AccountTerms& terms, int64_t unix_ms);

 private:
  void advance(int64_t unix_ms);
  bool asks_store(const AccountTerms& terms, int64_t unix_ms) const {
    return terms.leased && unix_ms >= away_until_ms_;
  }
  int64_t capacity(const AccountTerms& terms, size_t window, int64_t unix_ms) const;
  View view(const AccountTerms& terms, size_t window, int64_t unix_ms) const;

  std::array<WindowBudget, kAccountWindows> windows_{WindowBudget(60), WindowBudget(60),
                                                     WindowBudget(86'400)};
  int64_t running_ = 0;
  int64_t away_until_ms_ = 0, dry_until_ms_ = 0;
};

// How long a request waits that finds as many at once as there may be: a guess.
inline constexpr int64_t kAtOnceRetryMs = 1000;

}  // namespace troupe::route
