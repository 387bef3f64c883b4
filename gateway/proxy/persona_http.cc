#include "gateway/proxy/persona_http.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

ApiError precondition_failed(std::string_view why) {
  ApiError error = ApiError::bad_field("", why);
  error.http_status = 412;
  error.code = "precondition_failed";
  return error;
}

// Whether a header's list of entity tags has this one. ("*": any.)
bool lists_tag(std::string_view header, const std::string& etag) {
  return header == "*" || (!etag.empty() && header.find(etag) != std::string_view::npos);
}

}  // namespace

std::string persona_name_of(std::string_view path) {
  const size_t begin = kPersonasPath.size() + 1;
  if (!path.starts_with(kPersonasPath) || path.size() <= begin || path[begin - 1] != '/') return "";
  std::string out;
  for (size_t i = begin; i < path.size(); ++i) {
    const bool is_coded =
        path[i] == '%' && i + 2 < path.size() && hex_digit(path[i + 1]) >= 0 && hex_digit(path[i + 2]) >= 0;
    out += is_coded ? static_cast<char>(hex_digit(path[i + 1]) * 16 + hex_digit(path[i + 2])) : path[i];
    if (is_coded) i += 2;
  }
  return is_persona_name(out) ? out : "";
}

ApiResult<bool> check_persona_tags(const HttpRequest& request, const Persona* known) {
  const std::string etag = known == nullptr ? "" : known->versions.back().etag();
  const std::string_view match = request.header("if-match"), none = request.header("if-none-match");
  if (!match.empty() && (known == nullptr || !lists_tag(match, etag)))
    return precondition_failed(known == nullptr ? "If-Match: there is no such persona"
                                                : absl::StrCat("If-Match: it is ", etag, " now"));
  if (!none.empty() && known != nullptr && lists_tag(none, etag))
    return precondition_failed(absl::StrCat("If-None-Match: there is one, ", etag));
  return true;
}

bool has_version(const HttpRequest& request, const PersonaVersion& version) {
  return lists_tag(request.header("if-none-match"), version.etag());
}

ApiResult<int64_t> persona_version_of(const HttpRequest& request) {
  constexpr std::string_view kName = "version=";
  const size_t query = request.target.find('?');
  if (query == std::string::npos) return int64_t{0};
  std::string_view rest = std::string_view(request.target).substr(query + 1);
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    if (!item.starts_with(kName)) continue;
    const std::string_view text = item.substr(kName.size());
    int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 1)
      return ApiError::bad_field("version", "'version' must be a number from 1 on");
    return number;
  }
  return int64_t{0};
}

bj::object persona_summary(const Persona& persona, const PersonaVersion& version) {
  bj::object out;
  out["object"] = "persona";
  out["name"] = persona.name;
  out["version"] = version.number;
  bj::array numbers;
  for (const PersonaVersion& kept : persona.versions) numbers.emplace_back(kept.number);
  out["versions"] = std::move(numbers);
  out["created_at"] = version.created_s;
  out["read_only"] = persona.from_folder;
  out["etag"] = version.etag();
  return out;
}

void add_persona_prompt(bj::object& out, const PersonaVersion& version) {
  const PersonaPrompt& prompt = *version.prompt;
  out["card_bytes"] = prompt.shares_card() ? static_cast<int64_t>(prompt.card().size()) : 0;
  bj::array warnings;
  for (const std::string& warning : prompt.warnings()) warnings.emplace_back(warning);
  out["warnings"] = std::move(warnings);
}

}  // namespace troupe
