#include "gateway/access/api_key_file.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/settings/schema.h"
#include "common/settings/yaml.h"

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
      return invalid_argument(absl::StrCat(
          file_name, ":", entry.line, ": '", name, "' must be a name (letters, digits, - and _, at most ",
          kNameMax,
          ") with the settings of its key below it: sha256, models, "
          "requests_per_s, tokens_per_min, requests_at_once, priority, weight, "
          "requests_running, tokens_running, requests_waiting, requests_per_min, tokens_per_day, "
          "end_user, tenant, admin"));
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

}  // namespace

StatusOr<std::vector<ApiKey>> parse_api_keys(std::string_view yaml, const std::string& file_name) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in(yaml, file_name));
  std::vector<ApiKey> keys(names.size());
  std::vector<std::string> hexes(names.size());
  std::vector<int64_t> priorities(names.size());
  SettingsSchema schema("keys", "who may ask");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string prefix = names[i] + ".";
    keys[i].name = names[i];
    route::QuotaLimits& limits = keys[i].rights.quota;
    schema.add(prefix + "sha256", &hexes[i], "");
    schema.add(prefix + "models", &keys[i].models, "");
    schema.add(prefix + "requests_per_s", &limits.requests_per_s, "").range(0, 1e6);
    schema.add(prefix + "tokens_per_min", &limits.tokens_per_min, "").range(0, 1e12);
    schema.add(prefix + "requests_at_once", &limits.requests_at_once, "").range(0, 1e6);
    route::AdmissionKey& admission = keys[i].rights.admission;
    admission.id = hash_bytes(names[i]);
    schema.add(prefix + "priority", &priorities[i], "").range(route::kPriorityMin, route::kPriorityMax);
    schema.add(prefix + "weight", &admission.weight, "").range(0.01, 100);
    schema.add(prefix + "requests_running", &admission.limits.requests, "").range(0, 1e6);
    schema.add(prefix + "tokens_running", &admission.limits.tokens, "").range(0, 1e12);
    schema.add(prefix + "requests_waiting", &admission.waiting_max, "").range(0, 1e6);
    schema.add(prefix + "requests_per_min", &keys[i].account.requests_per_min, "").range(0, 1e9);
    schema.add(prefix + "tokens_per_day", &keys[i].account.tokens_per_day, "").range(0, 1e15);
    route::AccountLimits& user = keys[i].end_user;
    schema.add(prefix + "end_user.requests_per_min", &user.requests_per_min, "").range(-1, 1e9);
    schema.add(prefix + "end_user.tokens_per_min", &user.tokens_per_min, "").range(-1, 1e12);
    schema.add(prefix + "end_user.tokens_per_day", &user.tokens_per_day, "").range(-1, 1e15);
    schema.add(prefix + "end_user.requests_at_once", &user.requests_at_once, "").range(-1, 1e6);
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
    keys[i].rights.priority = static_cast<int32_t>(priorities[i]);
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
  TROUPE_ASSIGN_OR_RETURN(const std::string text, read_regular_file(path, kYamlBytesMax));
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

}  // namespace troupe
