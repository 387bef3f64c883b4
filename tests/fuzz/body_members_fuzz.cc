// A client's body with members replaced: whatever JSON object comes, the result is one, too, with the same
// members but those, which are what they were to become and come last; read by the strict parser, whose tree
// knows nothing of where bytes lie. What is left is the client's own bytes, in their order.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "gateway/proxy/json_patch.h"

namespace {

using troupe::JsonPatch;
namespace bj = boost::json;

void require(bool holds) {
  if (!holds) std::abort();
}

// The first byte of the input says which of these are put in.
std::vector<JsonPatch> chosen(uint8_t bits) {
  const std::array<JsonPatch, 4> all{JsonPatch{"cache_salt", "\"s\\\"}\""}, JsonPatch{"priority", "-3"},
                                     JsonPatch{"a", "{\"a\":[1,{}]}"}, JsonPatch{"", "null"}};
  std::vector<JsonPatch> members;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((bits >> i & 1) != 0) members.push_back(all[i]);
  }
  return members;
}

bool is_among(std::string_view name, const std::vector<JsonPatch>& members) {
  return std::any_of(members.begin(), members.end(), [&](const JsonPatch& m) { return m.name == name; });
}

// `part` is what is left of `whole` when bytes are taken out of it. (Commas may be any of the whole's.)
bool is_subsequence(std::string_view part, std::string_view whole) {
  size_t at = 0;
  for (const char c : part) {
    at = whole.find(c, at);
    if (at++ == std::string_view::npos) return false;
  }
  return true;
}

void check(std::string_view body, const bj::object& before, const std::vector<JsonPatch>& members) {
  const std::string out = troupe::with_members(body, members);
  const auto parsed = troupe::parse_json(out);  // refuses duplicates: none of the old ones is left
  require(parsed.ok() && parsed->is_object());
  const bj::object& after = parsed->get_object();
  auto it = after.begin();
  for (const auto& member : before) {
    if (is_among(std::string_view(member.key()), members)) continue;
    require(it != after.end() && it->key() == member.key());
    require(troupe::to_json(it->value()) == troupe::to_json(member.value()));
    ++it;
  }
  std::string tail;
  for (const JsonPatch& member : members) {
    require(it != after.end() && std::string_view(it->key()) == member.name);
    const auto value = troupe::parse_json(member.json);
    require(value.ok() && troupe::to_json(it->value()) == troupe::to_json(*value));
    ++it;
    tail += ",\"" + std::string(member.name) + "\":" + member.json;
  }
  require(it == after.end());
  tail += '}';
  const size_t kept = out.size() - std::min(out.size(), tail.size());
  require(is_subsequence(std::string_view(out).substr(0, kept), body));
  require(troupe::with_members(out, members) == out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::vector<JsonPatch> members = chosen(data[0]);
  const auto parsed = troupe::parse_json(body);
  if (parsed.ok() && parsed->is_object()) {
    check(body, parsed->get_object(), members);
  } else {
    (void)troupe::with_members(body, members);  // not asked for: it need only end
  }
  return 0;
}
