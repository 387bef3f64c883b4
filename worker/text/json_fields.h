#pragma once

// Typed look-ups in a parsed JSON object whose errors read "pre_tokenizer.use_regex: expected true or false".
// For files (tokenizer.json, tokenizer_config.json): a field of the wrong type is an error, not a default.

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

// An object, and its path for errors; a file's ends with ": ".
struct JsonItem {
  const bj::object* object = nullptr;
  std::string where;
};

StatusOr<JsonItem> json_object(const bj::value& value, std::string where);
// Returns `where.key`; null if absent or null.
const bj::value* find_field(const JsonItem& item, std::string_view key);
std::string field_path(const JsonItem& item, std::string_view key);
// Names a value's kind for messages: "a string", "null", …
std::string_view json_kind(const bj::value& value);

StatusOr<bool> bool_field(const JsonItem& item, std::string_view key, bool fallback);
StatusOr<std::string> string_field(const JsonItem& item, std::string_view key);
StatusOr<const bj::array*> array_field(const JsonItem& item, std::string_view key);
// Reads an id: an integer in [0, kTokenIdsMax).
StatusOr<int32_t> token_id(const bj::value& value, std::string_view where);

// Highest id a tokenizer may use: bounds the tables indexed by id, whatever a file claims.
inline constexpr int32_t kTokenIdsMax = 1 << 22;

// Reads the "type" of a component. Unknown types are reported as
// "pre_tokenizer: type "Metaspace" is not supported (supported: ByteLevel, Digits, …)".
StatusOr<std::string> component_type(const JsonItem& item);
Status unsupported_component(const JsonItem& item, std::string_view type, std::string_view supported);

}  // namespace troupe
