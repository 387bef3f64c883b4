#pragma once

// Quotas at the door: what a request's key and its end user may use in windows of time, beside the limits of
// keys in access_gate.h. A request takes a hold of its estimate in both accounts, or is refused by the one
// that has no room (429, with the limit's name and the time until its window ends); its end settles both.
// Answers carry x-ratelimit-*, of the tighter account.
//
// The rules are route/admission/account.h's; here are the clock, the store's calls and the words. With a
// store a request may wait for it, for a quarter of a second at most. On the event loop's thread.

#include <absl/container/flat_hash_set.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/core/metrics.h"
#include "common/net/http_message.h"
#include "common/net/task_group.h"
#include "gateway/access/api_keys.h"
#include "gateway/access/usage_record.h"
#include "gateway/cluster/account_store.h"
#include "gateway/route/admission/account_book.h"

namespace troupe {

class SettingsSchema;

struct AccountOptions {
  std::string user_header;        // names the end user, too; in lower case, or empty
  size_t users_max = 65'536;      // whose use is remembered
  route::AccountLimits end_user;  // of each end user; keys may have others
};
// Describes accounts.*. `options` must outlive the schema.
void describe(SettingsSchema& schema, AccountOptions& options);

class Accounts {
 public:
  struct Parts {
    Executor executor;
    Metrics& metrics;
    TaskGroup& background;
    AccountStore* store;  // null: each gateway has its part
  };
  Accounts(const AccountOptions& options, const Parts& parts);

  // One request's holds, until this ends: it settles them by `spent`.
  class Visit {
   public:
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    friend class Accounts;
    enum Of : size_t { kKey, kEndUser, kOfCount };
    struct Side {
      Hash128 id;
      route::AccountTerms terms;
      route::Account::Hold hold;
      bool concerned = false, held = false;
    };
    Visit(Accounts& accounts, const SpentTokens& spent) : accounts_(accounts), spent_(spent) {}
    Accounts& accounts_;
    const SpentTokens& spent_;
    std::shared_ptr<ApiClient> client_;  // null: none
    std::array<Side, kOfCount> sides_;
  };

  // A visit of this client and end user (empty: none is named); null: neither has a limit here. REQUIRES:
  // `spent` outlives it.
  std::unique_ptr<Visit> visit(std::shared_ptr<ApiClient> client, std::string_view end_user,
                               const SpentTokens& spent);
  // Takes the holds for about so many tokens. The error: 429.
  Task<ApiResult<bool>> arrive(Visit& visit, int64_t tokens);
  // Appends x-ratelimit-*.
  void append_headers(Visit& visit, TimePoint now, HeaderList& headers);

  // This gateway's place among those that enforce the limits.
  void share(const route::GatewayShard& place) { place_ = place; }
  void change(const AccountOptions& options);
  const AccountOptions& options() const { return options_; }

 private:
  route::AccountBook& book(size_t of) { return of == Visit::kKey ? keys_ : users_; }
  route::AccountTerms terms(const route::AccountLimits& limits) const {
    return {limits, place_, parts_.store != nullptr};
  }
  Task<route::Account::Answer> begin(size_t of, Visit::Side& side, int64_t tokens);
  Task<void> tell_store(size_t of, Hash128 id, route::AccountTerms terms);
  void settle(size_t of, Visit::Side& side, int64_t tokens);

  AccountOptions options_;
  const Parts parts_;
  route::GatewayShard place_;
  route::AccountBook keys_, users_;
  absl::flat_hash_set<Hash128> asking_;  // accounts of which a request asks the store
  Gauge& users_gauge_;
  Counter& forgotten_;
  uint64_t forgotten_shown_ = 0;
  std::array<std::array<Counter*, route::kAccountWindows + 1>, Visit::kOfCount> refused_{};
};

}  // namespace troupe
