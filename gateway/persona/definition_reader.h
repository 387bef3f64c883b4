#pragma once

// Reads what clients say of personas: the body of a PUT, and a request's `persona`. Strict and within bounds;
// errors name the field.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/json/json.h"
#include "gateway/persona/definition.h"

namespace troupe {

// `name`: {{char}} where the body says none.
ApiResult<PersonaDefinition> parse_persona(const bj::object& body, std::string_view name);

// Fields of a PUT that say what is to be done with the persona, and are no part of it.
struct PersonaDelivery {
  bool prefill = true;  // compute its card now
  bool pin = false;     // and keep it
  std::optional<int64_t> ttl_s;
  std::string model;  // at which; empty: the only one
};
ApiResult<PersonaDelivery> parse_delivery(const bj::object& body);
// The definition alone, as text: equal definitions have equal ones.
std::string definition_json(const bj::object& body);

// Names of personas: UTF-8 without '/' and control characters.
bool is_persona_name(std::string_view name);

// A request's `persona`: a name, or {"name": …, "version": …, "user": …, "variables": {…}, "greeting": …,
// "others": [name, …], "cards": "swap" or "join"}.
struct PersonaCall {
  std::string name;
  std::optional<int64_t> version;
  std::optional<std::string> user;
  PersonaVariables variables;
  std::optional<int64_t> greeting;  // the conversation begins with this one
  std::vector<std::string> others;  // personas that speak in it, too: sorted, each once, without `name`
  bool joins_cards = false;  // all their cards stand first, for every speaker; else the speaker's alone
};
inline constexpr size_t kPersonaOthersMax = 16;
ApiResult<PersonaCall> parse_persona_call(std::string_view json);

}  // namespace troupe
