#pragma once

// Personas as HTTP and JSON say them: names in paths, versions as entity tags, and what answers show. Plain
// functions.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/json/json.h"
#include "common/net/http_message.h"
#include "gateway/persona/registry.h"

namespace troupe {

inline constexpr std::string_view kPersonasPath = "/v1/personas";
// The name in /v1/personas/{name}, its %XX decoded; empty: another path.
std::string persona_name_of(std::string_view path);

// If-Match and If-None-Match, against the last version; null: there is none. The error: 412.
ApiResult<bool> check_persona_tags(const HttpRequest& request, const Persona* known);
// If-None-Match of a GET names this version, which the client has: 304.
bool has_version(const HttpRequest& request, const PersonaVersion& version);
// ?version=N of a GET; 0: none is named.
ApiResult<int64_t> persona_version_of(const HttpRequest& request);

// Name, versions and tag of a persona, as every answer has them.
bj::object persona_summary(const Persona& persona, const PersonaVersion& version);
// The text that is computed once for all users, in bytes (0: there is none), and warnings.
void add_persona_prompt(bj::object& out, const PersonaVersion& version);

}  // namespace troupe
