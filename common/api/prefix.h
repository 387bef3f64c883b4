#pragma once

// POST /v1/prefixes, for both programs: computes the beginning that many prompts share before the first of
// them arrives. The body is a chat's or a completion's with only the shared fields:
//
//   {"model": …, "messages": [{"role": "system", …}, …], "pin": true, "ttl_s": 3600}
//
// plus `tools`, `documents`, `chat_template_kwargs` and `cache_salt` if the later requests have them, or
// `prompt` instead of `messages`. Parsed by the rules of api.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"

namespace troupe {

struct PrefixRequest {
  // Holds kind, model, cache_salt, and messages, tools, documents and chat_template_kwargs, or a prompt. The
  // other fields are unused.
  GenerateRequest source;
  bool pin = false;              // never evicted
  std::optional<int64_t> ttl_s;  // lifetime, [1, kPrefixTtlMaxS]; without it until deleted
};
inline constexpr int64_t kPrefixTtlMaxS = 366 * 86'400;

// A body with `messages` is a chat, one with `prompt` a completion; both, or neither, is an error.
ApiResult<PrefixRequest> parse_prefix_request(std::string_view body, const ApiLimits& limits = {});

inline constexpr std::string_view kPrefixesPath = "/v1/prefixes";
// A gateway names the owner of a prefix, pinned or not, to its worker: a hash, from which neither key nor
// tenant can be had. With it a worker knows of the prefixes that were computed for this owner alone, and
// unpins what the last owner has removed; without it, of all, and at once.
inline constexpr std::string_view kOwnerHeader = "x-troupe-owner";
// "1": a gateway asks for owners in the list.
inline constexpr std::string_view kOwnersAskedHeader = "x-troupe-owners";
// Returns the id in /v1/prefixes/{id}; empty for any other path.
std::string_view prefix_id_of(std::string_view path);
// Every worker of a model gives the same prefix the same id.
std::string prefix_id(const Hash128& hash);
std::optional<Hash128> parse_prefix_id(std::string_view id);
// Error 404. `remedy`: advice to the client, which differs between the two programs.
ApiError unknown_prefix(std::string_view id, std::string_view remedy);

// A worker's record of a prefix.
struct PrefixState {
  Hash128 hash;
  std::string model;
  Hash128 set;                // zero: no gateway named one
  int64_t tokens = 0;         // tokens a request that begins with it finds cached, until some are evicted
  int64_t cached_tokens = 0;  // of these, cached before the prefix was computed
  bool pinned = false;
  std::optional<int64_t> ttl_s;
  int64_t created_s = 0;             // Unix
  std::optional<int64_t> expires_s;  // Unix
  // For gateways, in lists with owners.
  std::vector<std::string> owners;
  std::optional<int64_t> left_s;  // until it expires, whatever clocks say
};
std::string prefix_json(const PrefixState& state);

struct PrefixList {
  std::span<const PrefixState> prefixes;
  int64_t pinned_tokens = 0;  // in whole blocks
  int64_t pinned_tokens_max = 0;
  bool with_owners = false;
};
std::string prefix_list_json(const PrefixList& list);
std::string prefix_deleted_json(std::string_view id);

}  // namespace troupe
