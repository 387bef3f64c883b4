// The workers: worker_urls, which have an address alone, and upstreams, which want more. Keys are read from
// files or the environment here, and go nowhere but into the headers of requests.

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/core/environment.h"
#include "common/core/regular_file.h"
#include "gateway/config.h"

namespace troupe {
namespace {

constexpr size_t kApiKeyBytesMax = 8192;
constexpr size_t kUpstreamModelsMax = 1024;
constexpr EnumName<UpstreamKind> kUpstreamKinds[] = {
    {"auto", UpstreamKind::kAuto}, {"troupe", UpstreamKind::kTroupe}, {"openai", UpstreamKind::kOpenai}};

enum class Resolve : uint8_t { kOne, kEach };
constexpr EnumName<Resolve> kResolveNames[] = {{"one", Resolve::kOne}, {"each", Resolve::kEach}};

enum class KeyHeader : uint8_t { kAuthorization, kXApiKey, kApiKey };
constexpr EnumName<KeyHeader> kKeyHeaders[] = {{"authorization", KeyHeader::kAuthorization},
                                               {"x-api-key", KeyHeader::kXApiKey},
                                               {"api-key", KeyHeader::kApiKey}};

// An entry as it is written.
struct UpstreamEntry {
  std::string url, api_key_file, api_key_env;
  TlsFiles tls;
  KeyHeader key_header = KeyHeader::kAuthorization;
  Resolve resolve = Resolve::kOne;
  Upstream upstream;
};

bool is_plain_key(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

StatusOr<std::string> read_api_key(const UpstreamEntry& entry) {
  std::string key, from;
  if (!entry.api_key_file.empty()) {
    from = absl::StrCat("api_key_file: ", entry.api_key_file, ": ");
    auto text = read_regular_file(entry.api_key_file, kApiKeyBytesMax + 2);
    if (!text.ok()) return invalid_argument(absl::StrCat("api_key_file: ", text.status().message()));
    key = *std::move(text);
  } else {
    from = absl::StrCat("api_key_env: ", entry.api_key_env, ": ");
    const auto value = environment_variable(entry.api_key_env);
    if (!value) return invalid_argument(from + "there is no such variable in the environment");
    key = *value;
  }
  while (key.ends_with('\n') || key.ends_with('\r')) key.pop_back();
  if (key.empty()) return invalid_argument(from + "is empty");
  if (key.size() > kApiKeyBytesMax || !is_plain_key(key))
    return invalid_argument(from + "must hold one key alone, without spaces");
  return key;
}

void set_key(KeyHeader header, const std::string& key, Upstream& upstream) {
  const bool is_bearer = header == KeyHeader::kAuthorization;
  upstream.authorization = is_bearer ? "Bearer " + key : key;
  if (header == KeyHeader::kXApiKey) upstream.key_header = "x-api-key";
  if (header == KeyHeader::kApiKey) upstream.key_header = "api-key";
}

// Takes the lines of `models` out of the others: their keys are names of models.
Status take_models(SettingsItem& item, Upstream& upstream) {
  static constexpr std::string_view kModels = "models.";
  for (const YamlEntry& line : item.lines) {
    if (!line.key.starts_with(kModels)) continue;
    const std::string name = line.key.substr(kModels.size());
    if (line.text.empty())
      return invalid_argument(absl::StrCat(line.key, ": is empty: name the worker's model"));
    upstream.models.emplace(name, line.text);
  }
  if (upstream.models.size() > kUpstreamModelsMax)
    return invalid_argument(absl::StrCat("models: has more than ", kUpstreamModelsMax, " names"));
  std::erase_if(item.lines, [](const YamlEntry& line) { return line.key.starts_with(kModels); });
  return absl::OkStatus();
}

Status read_entry(SettingsItem item, UpstreamEntry& entry) {
  TROUPE_RETURN_IF_ERROR(take_models(item, entry.upstream));
  SettingsSchema schema("upstreams", "");
  schema.add("url", &entry.url, "");
  schema.add("api_key_file", &entry.api_key_file, "");
  schema.add("api_key_env", &entry.api_key_env, "");
  schema.add_enum("api_key_header", &entry.key_header, kKeyHeaders, "");
  schema.add_enum("resolve", &entry.resolve, kResolveNames, "");
  schema.add_enum("kind", &entry.upstream.kind, kUpstreamKinds, "");
  schema.add("weight", &entry.upstream.weight, "").range(0.01, 100);
  schema.add("tls.ca_file", &entry.tls.ca, "");
  schema.add("tls.insecure_skip_verify", &entry.tls.insecure_skip_verify, "");
  for (const YamlEntry& line : item.lines)
    TROUPE_RETURN_IF_ERROR(annotate(schema.apply_yaml(line), absl::StrCat("line ", line.line)));
  if (entry.url.empty()) return invalid_argument("url: is needed, such as https://llm.example/openai");
  if (!entry.api_key_file.empty() && !entry.api_key_env.empty())
    return invalid_argument("api_key_file and api_key_env: name one of them");
  return absl::OkStatus();
}

bool is_address(const std::string& host) {
  boost::system::error_code error;
  asio::ip::make_address(host, error);
  return !error;
}

Status add_tls(const UpstreamEntry& entry, const TlsFiles& shared, Upstream& upstream) {
  if (entry.tls.ca.empty() && !entry.tls.insecure_skip_verify) return absl::OkStatus();
  if (!upstream.endpoint.tls) return invalid_argument("tls: is of use with an https:// url only");
  if (!entry.tls.ca.empty() && entry.tls.insecure_skip_verify)
    return invalid_argument("tls: ca_file says nothing where insecure_skip_verify takes any certificate");
  TlsFiles files = shared;  // the certificate to show is the same everywhere
  files.ca = entry.tls.ca;
  files.insecure_skip_verify = entry.tls.insecure_skip_verify;
  upstream.tls = std::make_shared<TlsSource>();
  TROUPE_ASSIGN_OR_RETURN(upstream.tls->context, TlsContext::for_client(files, "tls"));
  upstream.tls_ca = files.ca;
  upstream.insecure_skip_verify = files.insecure_skip_verify;
  return absl::OkStatus();
}

StatusOr<Upstream> make_upstream(const SettingsItem& item, const TlsFiles& shared) {
  UpstreamEntry entry;
  TROUPE_RETURN_IF_ERROR(read_entry(item, entry));
  auto parsed = Upstream::parse(entry.url);
  if (!parsed.ok()) return annotate(parsed.status(), "url");
  Upstream& upstream = entry.upstream;
  upstream.endpoint = parsed->endpoint;
  upstream.path = parsed->path;
  upstream.each = entry.resolve == Resolve::kEach;
  if (upstream.each && is_address(upstream.endpoint.host))
    return invalid_argument("resolve: each is of use with a name; the url's host is an address already");
  upstream.authorization = parsed->authorization;
  if (!entry.api_key_file.empty() || !entry.api_key_env.empty()) {
    if (!upstream.authorization.empty())
      return invalid_argument("url: has credentials, and there is an API key: name one of them");
    TROUPE_ASSIGN_OR_RETURN(const std::string key, read_api_key(entry));
    set_key(entry.key_header, key, upstream);
  } else if (entry.key_header != KeyHeader::kAuthorization) {
    return invalid_argument("api_key_header: is of use with api_key_file or api_key_env only");
  }
  TROUPE_RETURN_IF_ERROR(add_tls(entry, shared, upstream));
  return upstream;
}

}  // namespace

StatusOr<std::vector<Upstream>> make_upstreams(const GatewaySettings& s) {
  std::vector<Upstream> workers;
  std::set<std::string> seen;
  const auto add = [&](StatusOr<Upstream> upstream, const std::string& where) -> Status {
    if (!upstream.ok()) return annotate(upstream.status(), where);
    if (!seen.insert(upstream->id()).second) {
      return invalid_argument(absl::StrCat(where, ": ", upstream->url(), " is there twice; list each once"));
    }
    workers.push_back(*std::move(upstream));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < s.worker_urls.size(); ++i)
    TROUPE_RETURN_IF_ERROR(add(Upstream::parse(s.worker_urls[i]), absl::StrCat("worker_urls[", i, "]")));
  for (size_t i = 0; i < s.upstreams.size(); ++i)
    TROUPE_RETURN_IF_ERROR(
        add(make_upstream(s.upstreams[i], s.upstream_tls), absl::StrCat("upstreams[", i, "]")));
  return workers;
}

}  // namespace troupe
