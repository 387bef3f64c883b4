#pragma once

// Typed look-ups in a parsed JSON object whose errors read "pre_tokenizer.use_regex: expected true or false".
// For files (tokenizer.json, tokenizer_config.json): a field of the wrong type is a lying file, not a
// default.

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

// The object at `where`, and the path that errors name.
struct JsonItem {
  const bj::object* object = nullptr;
  std::string where;
};

StatusOr<JsonItem> json_object(const bj::value& value, std::string where);
// `where.key`, null where the key is absent or null.
const bj::value* find_field(const JsonItem& item, std::string_view key);
std::string field_path(const JsonItem& item, std::string_view key);
// The kind of a value, for messages: "a string", "null", …
std::string_view json_kind(const bj::value& value);

StatusOr<bool> bool_field(const JsonItem& item, std::string_view key, bool fallback);
StatusOr<std::string> string_field(const JsonItem& item, std::string_view key);
StatusOr<const bj::array*> array_field(const JsonItem& item, std::string_view key);
// An id: an integer in [0, kTokenIdsMax).
StatusOr<int32_t> token_id(const bj::value& value, std::string_view where);

// Highest id a tokenizer may use: tables indexed by id stay small however a file lies.
inline constexpr int32_t kTokenIdsMax = 1 << 22;

// The "type" of a component. Unknown types are reported as
// "pre_tokenizer: type "Metaspace" is not supported (supported: ByteLevel, Digits, …)".
StatusOr<std::string> component_type(const JsonItem& item);
Status unsupported_component(const JsonItem& item, std::string_view type, std::string_view supported);

}  // namespace troupe
