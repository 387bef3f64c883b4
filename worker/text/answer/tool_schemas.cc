#include "worker/text/answer/tool_schemas.h"

#include "common/json/wide_json.h"

namespace troupe {
namespace {

constexpr int kSchemaDepthMax = 8;

std::string_view view(const bj::string& text) {
  return {text.data(), text.size()};
}

const bj::value* member(const bj::value& value, const char* name) {
  return value.is_object() ? value.get_object().if_contains(name) : nullptr;
}

uint8_t type_named(std::string_view name) {
  if (name == "integer" || name == "number") return kNumberType;
  if (name == "boolean") return kBooleanType;
  if (name == "array") return kArrayType;
  if (name == "object") return kObjectType;
  if (name == "null") return kNullType;
  return name == "string" ? kStringType : kAnyType;
}

uint8_t type_of(const bj::value& value) {
  if (value.is_null()) return kNullType;
  if (value.is_bool()) return kBooleanType;
  if (value.is_string()) return kStringType;
  if (value.is_array()) return kArrayType;
  return value.is_object() ? kObjectType : kNumberType;
}

uint8_t types_of_schema(const bj::value& schema, int depth) {
  uint8_t types = kNoType;
  if (const bj::value* type = member(schema, "type")) {
    if (type->is_string()) return type_named(view(type->get_string()));
    for (const bj::value& each : type->is_array() ? type->get_array() : bj::array())
      types |= each.is_string() ? type_named(view(each.get_string())) : kAnyType;
    if (types != kNoType) return types;
  }
  if (const bj::value* constant = member(schema, "const")) return type_of(*constant);
  if (const bj::value* choices = member(schema, "enum"); choices != nullptr && choices->is_array()) {
    for (const bj::value& choice : choices->get_array()) types |= type_of(choice);
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const bj::value* schemas = member(schema, name);
    if (schemas == nullptr || !schemas->is_array()) continue;
    for (const bj::value& each : schemas->get_array())
      types |= depth < kSchemaDepthMax ? types_of_schema(each, depth + 1) : kAnyType;
  }
  return types == kNoType ? kAnyType : types;
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// A word of Python's, as JSON's.
std::string_view json_word(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  return text == "None" ? "null" : text;
}

}  // namespace

StatusOr<ToolSchemas> ToolSchemas::parse(std::string_view tools_json) {
  ToolSchemas schemas;
  TROUPE_ASSIGN_OR_RETURN(const bj::value tools, parse_json_with_wide_integers(std::string(tools_json)));
  if (!tools.is_array()) return schemas;
  for (const bj::value& tool : tools.get_array()) {
    const bj::value* function = member(tool, "function");
    const bj::value* name = function == nullptr ? nullptr : member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Parameters& parameters = schemas.functions_[std::string(view(name->get_string()))];
    const bj::value* schema = member(*function, "parameters");
    const bj::value* properties = schema == nullptr ? nullptr : member(*schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& property : properties->get_object())
      parameters.emplace(std::string_view(property.key().data(), property.key().size()),
                         types_of_schema(property.value(), 0));
  }
  return schemas;
}

uint8_t ToolSchemas::types_of(std::string_view function, std::string_view parameter) const {
  const auto named = functions_.find(function);
  if (named == functions_.end()) return kStringType;
  const auto found = named->second.find(parameter);
  return found == named->second.end() ? kStringType : found->second;
}

std::string json_of_bare_value(std::string_view text, uint8_t types) {
  if (types != kStringType) {
    const std::string_view bare = stripped(text);
    const std::string_view word = json_word(bare);
    const auto value =
        word.empty() || word.front() == '"' ? StatusOr<bj::value>(absl::NotFoundError("")) : parse_json(word);
    if (value.ok() && (type_of(*value) & types) != 0) return std::string(word);
    // A quoted text where a string may be: only the whole text may say that it is one.
    if (!bare.empty() && bare.front() == '"' && (types & kStringType) != 0) {
      const auto quoted = parse_json(bare);
      if (quoted.ok() && quoted->is_string()) return std::string(bare);
    }
  }
  std::string json;
  append_json_string(json, text);
  return json;
}

}  // namespace troupe
