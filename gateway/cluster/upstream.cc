#include "gateway/cluster/upstream.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/api/passed_paths.h"
#include "common/core/base64.h"
#include "common/core/status.h"

namespace troupe {
namespace {

constexpr size_t kPathBytesMax = 512;

// `text` with %41 read as A.
StatusOr<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const bool coded = i + 2 < text.size() &&
                       std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ptr == &text[i + 1] + 2;
    if (!coded) return invalid_argument("its user or password has a '%' that two hex digits do not follow");
    out += static_cast<char>(byte);
    i += 2;
  }
  if (std::any_of(out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return invalid_argument("its user or password has a control character");
  return out;
}

StatusOr<std::string> basic_authorization(std::string_view credentials) {
  const size_t colon = credentials.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return invalid_argument("credentials must be user:password@, percent-encoded where they need it");
  TROUPE_ASSIGN_OR_RETURN(const std::string user, percent_decoded(credentials.substr(0, colon)));
  TROUPE_ASSIGN_OR_RETURN(const std::string password, percent_decoded(credentials.substr(colon + 1)));
  return "Basic " + base64(absl::StrCat(user, ":", password));
}

bool is_path(std::string_view path) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()*+,=:@/";
  return path.find_first_not_of(kAllowed) == std::string_view::npos &&
         path.find("//") == std::string_view::npos;
}

// The part of a path in which it names an endpoint, which the gateway does itself; empty: none. (A proxy may
// well have workers below /rerank or /v1/a/b, so only whole endpoints count.)
std::string_view endpoint_in(std::string_view path) {
  constexpr std::string_view kEnds[] = {
      "/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions",
      "/v1/models",           "/v1/prefixes",      "/v1/load"};
  while (path.ends_with('/')) path.remove_suffix(1);
  for (const std::string_view end : kEnds) {
    if (path.ends_with(end)) return path.substr(path.size() - end.size());
  }
  for (const std::string_view end : kPassedPaths) {
    if (end.starts_with("/v1/") && path.ends_with(end)) return path.substr(path.size() - end.size());
  }
  return {};
}

StatusOr<std::string> path_before(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);  // the gateway's own paths begin with it
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.size() > kPathBytesMax)
    return invalid_argument(absl::StrCat("its path is longer than ", kPathBytesMax, " bytes"));
  if (!is_path(path)) return invalid_argument(absl::StrCat("'", to_absl(path), "' is no plain path"));
  return std::string(path);
}

}  // namespace

StatusOr<Upstream> Upstream::parse(std::string_view url) {
  const size_t scheme_end = url.find("://");
  const size_t begin = scheme_end == std::string_view::npos ? 0 : scheme_end + 3;
  const size_t authority_end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t at = url.substr(0, authority_end).rfind('@');
  const bool has_credentials = at != std::string_view::npos && at >= begin;
  const size_t host = has_credentials ? at + 1 : begin;
  const std::string_view rest = url.substr(authority_end);
  // (An '@' in a later part may be the one behind a password with a '/' in it.)
  const size_t last_at = url.rfind('@');
  const size_t shown_from = last_at == std::string_view::npos ? host : std::max(host, last_at + 1);
  const std::string shown = absl::StrCat(to_absl(url.substr(0, begin)), to_absl(url.substr(shown_from)));
  const auto refuse = [&shown](const Status& why) { return annotate(why, absl::StrCat("'", shown, "'")); };
  if (rest.find('@') != std::string_view::npos)
    return refuse(
        invalid_argument("a worker's URL has no '@' in its path; a password with '/', '?' or '#' is "
                         "written with %2F, %3F and %23"));
  if (rest.find_first_of("?#") != std::string_view::npos)
    return refuse(invalid_argument("a worker's URL has neither query ('?') nor fragment ('#')"));
  Upstream upstream;
  TROUPE_ASSIGN_OR_RETURN(upstream.endpoint,
                          Endpoint::parse(absl::StrCat(to_absl(url.substr(0, begin)),
                                                       to_absl(url.substr(host, authority_end - host)))));
  if (const std::string_view named = endpoint_in(rest); !named.empty()) {
    const size_t base_size = shown.size() - static_cast<size_t>(rest.end() - named.begin());
    return refuse(invalid_argument(absl::StrCat("names an endpoint, ", to_absl(named),
                                                ", which the gateway adds itself: write ",
                                                shown.substr(0, base_size))));
  }
  auto path = path_before(rest);
  if (!path.ok()) return refuse(path.status());
  upstream.path = *std::move(path);
  if (!has_credentials) return upstream;
  auto authorization = basic_authorization(url.substr(begin, at - begin));
  if (!authorization.ok()) return refuse(authorization.status());
  upstream.authorization = *std::move(authorization);
  return upstream;
}

std::string Upstream::id() const {
  return address.empty() ? endpoint.authority() + path
                         : absl::StrCat(endpoint.authority(), "/", address, path);
}

Upstream Upstream::at(const std::string& one) const {
  Upstream worker = *this;
  worker.address = one;
  worker.each = false;
  return worker;
}

const std::string& Upstream::name_of(const std::string& model) const {
  const auto named = models.find(model);
  return named == models.end() ? model : named->second;
}

namespace {

// Ollama lists `m:latest`, and takes `m` for it.
void add_untagged(std::vector<ModelCard>& listed) {
  constexpr std::string_view kTag = ":latest";
  for (size_t i = 0, count = listed.size(); i < count; ++i) {
    ModelCard card = listed[i];
    if (!card.id.ends_with(kTag) || card.id.size() == kTag.size()) continue;
    card.id.resize(card.id.size() - kTag.size());
    const auto same = [&card](const ModelCard& other) { return other.id == card.id; };
    if (std::none_of(listed.begin(), listed.end(), same)) listed.push_back(std::move(card));
  }
}

}  // namespace

std::vector<ModelCard> Upstream::served(std::vector<ModelCard> listed) const {
  add_untagged(listed);
  if (models.empty()) return listed;
  std::vector<ModelCard> cards;
  for (const auto& [name, own] : models) {
    const auto same = [&own = own](const ModelCard& card) { return card.id == own; };
    const auto found = std::find_if(listed.begin(), listed.end(), same);
    if (found == listed.end()) continue;
    cards.push_back(*found);
    cards.back().id = name;
  }
  return cards;
}

std::vector<ModelCard> Upstream::served_unlisted() const {
  std::vector<ModelCard> cards;
  for (const auto& [name, own] : models) {
    ModelCard& card = cards.emplace_back();
    card.id = name;
    card.owned_by.clear();
  }
  return cards;
}

bool Upstream::same_as(const Upstream& other) const {
  return endpoint == other.endpoint && address == other.address && each == other.each && path == other.path &&
         authorization == other.authorization && key_header == other.key_header && kind == other.kind &&
         weight == other.weight && models == other.models && tls_ca == other.tls_ca &&
         insecure_skip_verify == other.insecure_skip_verify;
}

}  // namespace troupe
