#include "worker/text/answer/tool_schemas.h"

#include <algorithm>

#include "common/json/wide_json.h"

namespace troupe {
namespace {

constexpr int kSchemaDepthMax = 8;
constexpr size_t kWorkMax = 100'000;  // schemas looked at, of a request's tools

std::string_view text_view(const bj::string& text) {
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

// Types that schemas of one document allow, at the least: what they mean together may be fewer.
class TypeReader {
 public:
  // `work_left`: of all of a request's tools. Past it types are any, as they are for all who ask.
  TypeReader(const bj::value& root, size_t& work_left) : root_(root), work_left_(work_left) {}

  uint8_t types_of(const bj::value& schema, int depth);
  // Adds the types of members of objects that pass: by name to `known`, all others' to `others`.
  void read_members(const bj::value& schema, std::map<std::string, uint8_t, std::less<>>& known,
                    uint8_t& others, int depth);

 private:
  uint8_t types_of_any(const bj::value& schema, const char* keyword, int depth);
  const bj::value* target_of(const bj::value* reference);
  // Schemas that refer to each other are many more than there are texts of them.
  bool is_too_much(int depth, size_t work = 1) {
    if (depth > kSchemaDepthMax || work > work_left_) return true;
    work_left_ -= work;
    return false;
  }

  const bj::value& root_;
  size_t& work_left_;
};

// A JSON pointer within the document; null: to nothing, or elsewhere.
const bj::value* TypeReader::target_of(const bj::value* keyword) {
  if (keyword == nullptr || !keyword->is_string()) return nullptr;
  std::string_view reference = text_view(keyword->get_string());
  if (is_too_much(0, reference.size() / 16)) return nullptr;
  if (!reference.starts_with("#") || reference.find('%') != std::string_view::npos) return nullptr;
  const bj::value* at = &root_;
  for (reference.remove_prefix(1); !reference.empty() && at != nullptr;) {
    if (reference.front() != '/') return nullptr;
    const size_t end = std::min(reference.find('/', 1), reference.size());
    std::string name;
    for (size_t i = 1; i < end; ++i) {
      const bool is_escape = reference[i] == '~' && i + 1 < end;
      name += is_escape ? (reference[++i] == '1' ? '/' : '~') : reference[i];
    }
    reference.remove_prefix(end);
    at = at->is_object() ? at->get_object().if_contains(name) : nullptr;
  }
  return at;
}

uint8_t TypeReader::types_of_any(const bj::value& schema, const char* keyword, int depth) {
  uint8_t types = kNoType;
  const bj::value* schemas = member(schema, keyword);
  if (schemas == nullptr || !schemas->is_array()) return types;
  for (const bj::value& each : schemas->get_array()) types |= types_of(each, depth + 1);
  return types;
}

uint8_t TypeReader::types_of(const bj::value& schema, int depth) {
  if (is_too_much(depth)) return kAnyType;
  uint8_t types = kNoType;
  if (const bj::value* type = member(schema, "type")) {
    if (type->is_string()) types = type_named(text_view(type->get_string()));
    for (const bj::value& each : type->is_array() ? type->get_array() : bj::array())
      types |= each.is_string() ? type_named(text_view(each.get_string())) : kAnyType;
    const bj::value* nullable = member(schema, "nullable");  // OpenAPI 3.0
    if (nullable != nullptr && nullable->is_bool() && nullable->get_bool()) types |= kNullType;
    if (types != kNoType) return types;
  }
  if (const bj::value* constant = member(schema, "const")) return type_of(*constant);
  if (const bj::value* choices = member(schema, "enum"); choices != nullptr && choices->is_array()) {
    for (const bj::value& choice : choices->get_array()) types |= type_of(choice);
  }
  types |= types_of_any(schema, "anyOf", depth);
  types |= types_of_any(schema, "oneOf", depth);
  if (types != kNoType) return types;
  if (const bj::value* target = target_of(member(schema, "$ref"))) return types_of(*target, depth + 1);
  types = types_of_any(schema, "allOf", depth);
  return types == kNoType ? kAnyType : types;
}

void TypeReader::read_members(const bj::value& schema, std::map<std::string, uint8_t, std::less<>>& known,
                              uint8_t& others, int depth) {
  if (is_too_much(depth)) return;
  const bj::value* properties = member(schema, "properties");
  if (properties != nullptr && properties->is_object()) {
    for (const auto& property : properties->get_object())
      known[std::string(property.key().data(), property.key().size())] |= types_of(property.value(), 0);
  }
  for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
    const bj::value* schema_of_others = member(schema, keyword);
    const bool is_schema = schema_of_others != nullptr && schema_of_others->is_object();
    if (is_schema && !schema_of_others->get_object().empty()) others |= types_of(*schema_of_others, 0);
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const bj::value* schemas = member(schema, keyword);
    if (schemas == nullptr || !schemas->is_array()) continue;
    for (const bj::value& each : schemas->get_array()) read_members(each, known, others, depth + 1);
  }
  if (const bj::value* target = target_of(member(schema, "$ref")))
    read_members(*target, known, others, depth + 1);
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
  size_t work_left = kWorkMax;
  for (const bj::value& tool : tools.get_array()) {
    const bj::value* function = member(tool, "function");
    const bj::value* name = function == nullptr ? nullptr : member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Function& read = schemas.functions_[std::string(text_view(name->get_string()))];
    const bj::value* schema = member(*function, "parameters");
    if (schema != nullptr)
      TypeReader(*schema, work_left).read_members(*schema, read.parameters, read.others, 0);
    if (read.others == kNoType) read.others = kStringType;
  }
  return schemas;
}

uint8_t ToolSchemas::types_of(std::string_view function, std::string_view parameter) const {
  const auto named = functions_.find(function);
  if (named == functions_.end()) return kStringType;
  const Function& known = named->second;
  const auto found = known.parameters.find(parameter);
  return found == known.parameters.end() ? known.others : found->second;
}

std::vector<std::string> ToolSchemas::read_as_json(std::string_view function) const {
  std::vector<std::string> names;
  const auto named = functions_.find(function);
  if (named == functions_.end()) return names;
  for (const auto& [name, types] : named->second.parameters) {
    if (types != kStringType) names.push_back(name);
  }
  return names;
}

uint8_t ToolSchemas::types_of_others(std::string_view function) const {
  const auto named = functions_.find(function);
  return named == functions_.end() ? kStringType : named->second.others;
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
