#pragma once

// API keys in use: which client a request comes from, and what it has used of its limits. Their file
// (api_key_file.h) can be read again at any time: whole, or not at all. Used from one thread.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"
#include "common/core/metrics.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "gateway/access/api_key_file.h"
#include "gateway/route/admission/key_usage.h"
#include "gateway/route/fleet/gateway_shard.h"

namespace troupe {

Sha256 sha256(std::string_view bytes);

// A client with a key. Shared: a reload that removes its key ends no request of it.
class ApiClient {
 public:
  // `salt`: its tenant's, empty without one.
  ApiClient(const ApiKey& key, std::string salt, Metrics& metrics, TimePoint now);
  const std::string& name() const { return key_.name; }
  bool may_use(std::string_view model) const;
  // This gateway's shard of the key's limits.
  const route::AdmissionKey& admission() const { return usage_.admission(); }
  int32_t priority() const { return usage_.priority(); }
  // Limits in windows of time, of all gateways together: its own, and those of each of its end users, where
  // it says nothing as in `defaults`.
  const route::AccountLimits& account() const { return key_.account; }
  route::AccountLimits end_user(const route::AccountLimits& defaults) const;
  // The minute's tokens (tokens_per_min) of this gateway's shard.
  route::Quota::View tokens(TimePoint now) { return usage_.tokens(now); }
  const std::string& tenant() const { return key_.tenant; }
  bool admin() const { return key_.admin; }
  const std::string& tenant_salt() const { return salt_; }
  // This key or another of the gateway's names a tenant: what one client has left at a worker is not
  // another's.
  bool among_tenants() const { return among_tenants_; }
  // Names whose the client's pins are, to other gateways too: its tenant's, or without one its own. A hash,
  // from which neither can be had.
  std::string owner() const;
  void change(const ApiKey& key, std::string salt, TimePoint now);
  // Each gateway enforces its shard of the key's limits; until the first call, all of them.
  void share(const route::GatewayShard& place, TimePoint now) { usage_.share(place, now); }

  std::optional<route::Quota::Refusal> begin(TimePoint now);
  void end(int64_t tokens, TimePoint now);

 private:
  friend class ApiKeys;
  ApiKey key_;
  std::string salt_;
  bool among_tenants_ = false;
  route::KeyUsage usage_;
  Counter& requests_;
  Counter& tokens_;
  std::array<Counter*, 3> refused_{};  // by Quota::Limit
};

class ApiKeys {
 public:
  explicit ApiKeys(Metrics& metrics) : metrics_(metrics) {}
  // Replaces all clients; those whose names stay keep what they have used.
  void take(const std::vector<ApiKey>& keys, std::string_view tenant_secret, TimePoint now);
  // Reads and takes both files (the tenants' secret may be "": none). After an error all stays as it was.
  Status load(const std::string& path, const std::string& tenant_secret_path, TimePoint now);
  // ApiClient::share() for all keys, present and future.
  void share(const route::GatewayShard& place, TimePoint now);
  // Finds a client by an Authorization header's value, "Bearer KEY"; null: unknown key. Its duration does not
  // reveal where a wrong key differs: keys are compared by their digests, whole.
  std::shared_ptr<ApiClient> find(std::string_view authorization) const;
  // The client with a key of this name; null: none.
  std::shared_ptr<ApiClient> named(std::string_view name) const;
  // A client with this owner(); null: none.
  std::shared_ptr<ApiClient> of_owner(std::string_view owner) const;
  // The owner() of this tenant's clients; nullopt: no key names it.
  std::optional<std::string> owner_of_tenant(std::string_view tenant) const;
  size_t size() const { return clients_.size(); }

 private:
  Metrics& metrics_;
  route::GatewayShard place_;
  std::vector<std::shared_ptr<ApiClient>> clients_;
};

// 401 for a key that find() does not know. `authorization`: the header's value, or empty.
ApiError unknown_key(std::string_view authorization);

// One request of a client: counted from `begin` on; destruction ends it and charges its tokens.
class ApiKeyLease {
 public:
  ApiKeyLease(std::shared_ptr<ApiClient> client, const Clock& clock)
      : client_(std::move(client)), clock_(clock) {}
  ~ApiKeyLease() { client_->end(tokens_, clock_.now()); }
  ApiKeyLease(const ApiKeyLease&) = delete;
  ApiKeyLease& operator=(const ApiKeyLease&) = delete;
  void cost(int64_t tokens) { tokens_ = tokens; }

 private:
  const std::shared_ptr<ApiClient> client_;
  const Clock& clock_;
  int64_t tokens_ = 0;
};

}  // namespace troupe
