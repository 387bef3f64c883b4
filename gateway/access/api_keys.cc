#include "gateway/access/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/settings/schema.h"
#include "common/settings/yaml.h"
#include "gateway/access/secret.h"
#include "gateway/access/tenant.h"
#include "gateway/route/admission/shard_limit.h"

namespace troupe {

namespace {

constexpr size_t kNameMax = 64;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
}

std::optional<Sha256> digest_of_hex(std::string_view hex) {
  Sha256 digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const auto c = static_cast<unsigned char>(hex[i]);
    if (std::isxdigit(c) == 0) return std::nullopt;
    const int digit = std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10;
    digest[i / 2] = static_cast<uint8_t>(digest[i / 2] << 4 | digit);
  }
  return digest;
}

// Top-level names in the file's order, each once.
StatusOr<std::vector<std::string>> names_in(std::string_view yaml, const std::string& file_name) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, flatten_yaml(yaml, file_name));
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const YamlEntry& entry : entries) {
    const size_t dot = entry.key.find('.');
    const std::string name = entry.key.substr(0, dot);
    if (!is_name(name) || dot == std::string::npos) {
      return invalid_argument(
          absl::StrCat(file_name, ":", entry.line, ": '", name,
                       "' must be a name (letters, digits, - and _, at most ", kNameMax,
                       ") with the settings of its key below it: sha256, models, "
                       "requests_per_s, tokens_per_min, requests_at_once, priority, weight, "
                       "requests_running, tokens_running, requests_waiting, tenant, admin"));
    }
    if (seen.insert(name).second) names.push_back(name);
  }
  if (names.empty()) return invalid_argument(absl::StrCat(file_name, ": names nobody, so nobody could ask"));
  if (names.size() > kApiKeysMax)
    return invalid_argument(
        absl::StrCat(file_name, ": has ", names.size(), " keys, more than ", kApiKeysMax));
  return names;
}

Status check_distinct(const std::vector<ApiKey>& keys, const std::string& file_name) {
  std::map<Sha256, std::string_view> seen;
  for (const ApiKey& key : keys) {
    const auto [first, is_new] = seen.emplace(key.digest, key.name);
    if (!is_new) {
      return invalid_argument(absl::StrCat(file_name, ": key '", key.name,
                                           "': sha256 is the same as that of '", to_absl(first->second),
                                           "'; give everybody a key of their own"));
    }
  }
  return absl::OkStatus();
}

std::string_view limit_name(route::Quota::Limit limit) {
  switch (limit) {
    case route::Quota::Limit::kRequestsAtOnce:
      return "requests_at_once";
    case route::Quota::Limit::kRequestsPerSecond:
      return "requests_per_s";
    case route::Quota::Limit::kTokensPerMinute:
      break;
  }
  return "tokens_per_min";
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  Sha256 digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

StatusOr<std::vector<ApiKey>> parse_api_keys(std::string_view yaml, const std::string& file_name) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(yaml, file_name));
  std::vector<ApiKey> keys(names.size());
  std::vector<std::string> hexes(names.size());
  std::vector<int64_t> priorities(names.size());
  SettingsSchema schema("keys", "who may ask");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string prefix = names[i] + ".";
    keys[i].name = names[i];
    route::QuotaLimits& limits = keys[i].limits;
    schema.add(prefix + "sha256", &hexes[i], "");
    schema.add(prefix + "models", &keys[i].models, "");
    schema.add(prefix + "requests_per_s", &limits.requests_per_s, "").range(0, 1e6);
    schema.add(prefix + "tokens_per_min", &limits.tokens_per_min, "").range(0, 1e12);
    schema.add(prefix + "requests_at_once", &limits.requests_at_once, "").range(0, 1e6);
    route::AdmissionKey& admission = keys[i].admission;
    admission.id = hash_bytes(names[i]);
    schema.add(prefix + "priority", &priorities[i], "").range(route::kPriorityMin, route::kPriorityMax);
    schema.add(prefix + "weight", &admission.weight, "").range(0.01, 100);
    schema.add(prefix + "requests_running", &admission.limits.requests, "").range(0, 1e6);
    schema.add(prefix + "tokens_running", &admission.limits.tokens, "").range(0, 1e12);
    schema.add(prefix + "requests_waiting", &admission.waiting_max, "").range(0, 1e6);
    schema.add(prefix + "tenant", &keys[i].tenant, "");
    schema.add(prefix + "admin", &keys[i].admin, "");
  }
  TROUPE_RETURN_IF_ERROR(schema.load_yaml(yaml, file_name));
  for (size_t i = 0; i < names.size(); ++i) {
    const auto digest = digest_of_hex(hexes[i]);
    if (!digest) {
      return invalid_argument(
          absl::StrCat(file_name, ": key '", names[i],
                       "': sha256 must be the 64 hex digits that `printf %s \"$KEY\" | sha256sum` prints"));
    }
    keys[i].digest = *digest;
    keys[i].priority = static_cast<int32_t>(priorities[i]);
    if (!keys[i].tenant.empty() && !is_name(keys[i].tenant)) {
      return invalid_argument(absl::StrCat(file_name, ": key '", names[i],
                                           "': tenant must be a name (letters, digits, - and _, at most ",
                                           kNameMax, ")"));
    }
  }
  TROUPE_RETURN_IF_ERROR(check_distinct(keys, file_name));
  return keys;
}

StatusOr<std::vector<ApiKey>> read_api_keys(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kYamlBytesMax + 1, '\0');  // a byte beyond the limit, so that a longer file is refused
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_api_keys(text, path);
}

Status check_tenants(const std::vector<ApiKey>& keys, std::string_view secret) {
  for (const ApiKey& key : keys) {
    if (!key.tenant.empty() && secret.empty()) {
      return invalid_argument(absl::StrCat("key '", key.name, "': tenant '", key.tenant,
                                           "' needs a secret to make its salt of; set tenant_secret"));
    }
  }
  return absl::OkStatus();
}

ApiClient::ApiClient(const ApiKey& key, std::string salt, Metrics& metrics, TimePoint now)
    : key_(key),
      admission_(key.admission),
      salt_(std::move(salt)),
      quota_(key.limits, now),
      requests_(metrics.counter("troupe_gateway_key_requests_total", "Requests let in, by the key's name.",
                                {{"key", key.name}})),
      tokens_(metrics.counter("troupe_gateway_key_tokens_total",
                              "Tokens of prompts and answers, by the key's name.", {{"key", key.name}})) {
  for (size_t i = 0; i < refused_.size(); ++i) {
    refused_[i] = &metrics.counter(
        "troupe_gateway_key_refused_total", "Requests over a limit of their key, by its name and which.",
        {{"key", key.name}, {"limit", std::string(limit_name(static_cast<route::Quota::Limit>(i)))}});
  }
}

bool ApiClient::may_use(std::string_view model) const {
  return key_.models.empty() || std::find(key_.models.begin(), key_.models.end(), model) != key_.models.end();
}

void ApiClient::change(const ApiKey& key, std::string salt, TimePoint now) {
  key_ = key;
  salt_ = std::move(salt);
  share(place_, now);
}

void ApiClient::share(const route::GatewayShard& place, TimePoint now) {
  place_ = place;
  admission_ = route::share_of(key_.admission, place);
  quota_.change(route::share_of(key_.limits, place), now);
}

std::optional<route::Quota::Refusal> ApiClient::begin(TimePoint now) {
  const auto refusal = quota_.begin(now);
  if (refusal) {
    refused_[static_cast<size_t>(refusal->limit)]->Increment();
  } else {
    requests_.Increment();
  }
  return refusal;
}

void ApiClient::end(int64_t tokens, TimePoint now) {
  quota_.end(tokens, now);
  tokens_.Increment(static_cast<double>(tokens));
}

void ApiKeys::take(const std::vector<ApiKey>& keys, std::string_view tenant_secret, TimePoint now) {
  std::map<std::string, std::shared_ptr<ApiClient>> old;
  for (const auto& client : clients_) old.emplace(client->name(), client);
  std::vector<std::shared_ptr<ApiClient>> clients;
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

ApiError unknown_key(std::string_view authorization) {
  ApiError error = ApiError::bad_field(
      "", authorization.empty() ? "an API key is needed: send it as 'Authorization: Bearer KEY'"
                                : "this API key is not known here; is it complete, and still in use?");
  error.http_status = 401;
  error.code = "invalid_api_key";
  return error;
}

}  // namespace troupe
