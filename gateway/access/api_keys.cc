#include "gateway/access/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "gateway/access/secret.h"
#include "gateway/access/tenant.h"

namespace troupe {

Sha256 sha256(std::string_view bytes) {
  Sha256 digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

ApiClient::ApiClient(const ApiKey& key, std::string salt, Metrics& metrics, TimePoint now)
    : key_(key),
      salt_(std::move(salt)),
      usage_(key.rights, now),
      requests_(metrics.counter("troupe_gateway_key_requests_total", "Requests let in, by the key's name.",
                                {{"key", key.name}})),
      tokens_(metrics.counter("troupe_gateway_key_tokens_total",
                              "Tokens of prompts and answers, by the key's name.", {{"key", key.name}})) {
  for (size_t i = 0; i < refused_.size(); ++i) {
    refused_[i] = &metrics.counter(
        "troupe_gateway_key_refused_total", "Requests over a limit of their key, by its name and which.",
        {{"key", key.name},
         {"limit", std::string(route::quota_limit_name(static_cast<route::Quota::Limit>(i)))}});
  }
}

bool ApiClient::may_use(std::string_view model) const {
  return key_.models.empty() || std::find(key_.models.begin(), key_.models.end(), model) != key_.models.end();
}

route::AccountLimits ApiClient::end_user(const route::AccountLimits& defaults) const {
  const auto of = [](int64_t own, int64_t common) { return own < 0 ? common : own; };
  const route::AccountLimits& own = key_.end_user;
  return {of(own.requests_per_min, defaults.requests_per_min),
          of(own.tokens_per_min, defaults.tokens_per_min), of(own.tokens_per_day, defaults.tokens_per_day),
          of(own.requests_at_once, defaults.requests_at_once)};
}

void ApiClient::change(const ApiKey& key, std::string salt, TimePoint now) {
  key_ = key;
  salt_ = std::move(salt);
  usage_.change(key.rights, now);
}

std::optional<route::Quota::Refusal> ApiClient::begin(TimePoint now) {
  const auto refusal = usage_.begin(now);
  if (refusal) {
    refused_[static_cast<size_t>(refusal->limit)]->Increment();
  } else {
    requests_.Increment();
  }
  return refusal;
}

void ApiClient::end(int64_t tokens, TimePoint now) {
  usage_.end(tokens, now);
  tokens_.Increment(static_cast<double>(tokens));
}

std::string ApiClient::owner() const {
  return salt_.empty() ? keyed_hash("the pins of a key", key_.name)
                       : keyed_hash(salt_, "the pins of a tenant");
}

void ApiKeys::take(const std::vector<ApiKey>& keys, std::string_view tenant_secret, TimePoint now) {
  std::map<std::string, std::shared_ptr<ApiClient>> old;
  for (const auto& client : clients_) old.emplace(client->name(), client);
  std::vector<std::shared_ptr<ApiClient>> clients;
  const bool has_tenants =
      std::any_of(keys.begin(), keys.end(), [](const ApiKey& key) { return !key.tenant.empty(); });
  for (const ApiKey& key : keys) {
    std::string salt = key.tenant.empty() ? std::string() : tenant_salt(tenant_secret, key.tenant);
    const auto known = old.find(key.name);
    if (known == old.end()) {
      clients.push_back(std::make_shared<ApiClient>(key, std::move(salt), metrics_, now));
    } else {
      clients.push_back(known->second);
      clients.back()->change(key, std::move(salt), now);
    }
    clients.back()->share(place_, now);
    clients.back()->among_tenants_ = has_tenants;
  }
  clients_ = std::move(clients);
}

Status ApiKeys::load(const std::string& path, const std::string& tenant_secret_path, TimePoint now) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ApiKey> keys, read_api_keys(path));
  std::string secret;
  if (!tenant_secret_path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(secret, read_secret(tenant_secret_path));
  }
  TROUPE_RETURN_IF_ERROR(check_tenants(keys, secret));
  take(keys, secret, now);
  return absl::OkStatus();
}

void ApiKeys::share(const route::GatewayShard& place, TimePoint now) {
  place_ = place;
  for (const auto& client : clients_) client->share(place, now);
}

std::shared_ptr<ApiClient> ApiKeys::find(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return nullptr;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return nullptr;
  }
  const Sha256 digest = sha256(authorization.substr(kScheme.size()));
  std::shared_ptr<ApiClient> found;
  for (const auto& client : clients_) {
    if (CRYPTO_memcmp(client->key_.digest.data(), digest.data(), digest.size()) == 0) found = client;
  }
  return found;
}

std::shared_ptr<ApiClient> ApiKeys::named(std::string_view name) const {
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [name](const auto& client) { return client->name() == name; });
  return found == clients_.end() ? nullptr : *found;
}

std::shared_ptr<ApiClient> ApiKeys::of_owner(std::string_view owner) const {
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [owner](const auto& client) { return client->owner() == owner; });
  return found == clients_.end() ? nullptr : *found;
}

std::optional<std::string> ApiKeys::owner_of_tenant(std::string_view tenant) const {
  const auto found = std::find_if(clients_.begin(), clients_.end(),
                                  [tenant](const auto& client) { return client->key_.tenant == tenant; });
  if (tenant.empty() || found == clients_.end()) return std::nullopt;
  return (*found)->owner();
}

ApiError unknown_key(std::string_view authorization) {
  ApiError error = ApiError::bad_field(
      "", authorization.empty()
              ? "an API key is needed: send it as 'Authorization: Bearer KEY' (or 'api-key: KEY')"
              : "this API key is not known here; is it complete, and still in use?");
  error.http_status = 401;
  error.code = "invalid_api_key";
  return error;
}

}  // namespace troupe
