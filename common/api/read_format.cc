#include "common/api/read_format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

using Kind = AnswerFormat::Kind;

constexpr size_t kSourceBytesMax = size_t{1} << 20;
// Each is a part of the grammar, which takes far more memory than a short text.
constexpr size_t kFormatChoicesMax = 16384;

bool is_off(dom::element value) {
  if (value.is_null()) return true;
  if (value.is_object()) return value.get_object().value_unsafe().size() == 0;
  if (value.is_array()) return value.get_array().value_unsafe().size() == 0;
  if (value.is_bool()) return !value.get_bool().value_unsafe();
  return value.is_string() && value.get_string().value_unsafe().empty();
}

std::string path_of(std::string_view outer, std::string_view inner) {
  return absl::StrCat(to_absl(outer), ".", to_absl(inner));
}

// A schema, or its JSON as a text.
Fault read_schema(std::string_view param, dom::element value, std::string& out) {
  if (value.is_string()) return read_string(param, value, kSourceBytesMax, out);
  if (!value.is_object() && !value.is_bool())
    return expected(param, "a JSON schema, an object or its text", value);
  append_element_json(out, value);
  return std::nullopt;
}

Fault read_object(std::string_view param, dom::element value, std::string& out) {
  if (!value.is_object()) return expected(param, "an object", value);
  append_element_json(out, value);
  return std::nullopt;
}

Fault read_choices(std::string_view param, dom::element value, std::vector<std::string>& out) {
  if (!value.is_array()) return expected(param, "a list of texts", value);
  const dom::array items = value.get_array().value_unsafe();
  if (items.size() > kFormatChoicesMax) {
    return ApiError::bad_field(param, absl::StrCat("'", to_absl(param), "' must have at most ",
                                                   kFormatChoicesMax, " texts, not ", items.size(), "."));
  }
  for (const dom::element item : items) {
    if (!item.is_string()) return expected(param, "a list of texts", value);
    out.emplace_back(item.get_string().value_unsafe());
  }
  return std::nullopt;
}

Fault read_source(Kind kind, std::string_view param, dom::element value, AnswerFormat& out) {
  out.kind = kind;
  out.field = std::string(param);
  if (kind == Kind::kJsonSchema) return read_schema(param, value, out.text);
  if (kind == Kind::kChoice) return read_choices(param, value, out.choices);
  if (kind == Kind::kStructuralTag) {
    if (value.is_string()) return read_string(param, value, kSourceBytesMax, out.text);
    return read_object(param, value, out.text);
  }
  if (kind == Kind::kJsonObject) {
    bool wanted = false;
    return read_bool(param, value, wanted);
  }
  return read_string(param, value, kSourceBytesMax, out.text);
}

struct Row {
  std::string_view name;
  Kind kind = Kind::kJsonObject;
};
// Sorted by name.
constexpr Row kRows[] = {
    {"grammar", Kind::kGbnf},
    {"grammar_string", Kind::kGbnf},
    {"guided_choice", Kind::kChoice},
    {"guided_grammar", Kind::kGbnf},
    {"guided_json", Kind::kJsonSchema},
    {"guided_json_object", Kind::kJsonObject},
    {"guided_regex", Kind::kRegex},
    {"guided_whitespace_pattern", Kind::kJsonObject},
    {"json_schema", Kind::kJsonSchema},
    {"regex", Kind::kRegex},
    {"regex_pattern", Kind::kRegex},
    {"response_format", Kind::kJsonObject},
    {"structured_outputs", Kind::kJsonObject},
};
// Members of structured_outputs.
constexpr Row kMembers[] = {
    {"choice", Kind::kChoice},          {"grammar", Kind::kGbnf}, {"json", Kind::kJsonSchema},
    {"json_object", Kind::kJsonObject}, {"regex", Kind::kRegex},  {"structural_tag", Kind::kStructuralTag},
};

template <size_t N>
const Row* find_row(const Row (&rows)[N], std::string_view name) {
  const Row* const row = std::lower_bound(std::begin(rows), std::end(rows), name,
                                          [](const Row& r, std::string_view n) { return r.name < n; });
  return row != std::end(rows) && row->name == name ? row : nullptr;
}

Fault unsupported(std::string_view param, std::string_view why) {
  return ApiError::unsupported(
      param, absl::StrCat("'", to_absl(param), "' is not supported here: ", to_absl(why), "; leave it out."));
}

}  // namespace

bool GivenFormat::knows(std::string_view name) {
  return find_row(kRows, name) != nullptr;
}

Fault GivenFormat::add(std::string_view name, AnswerFormat format, GenerateRequest& request) {
  if (request.format) {
    const std::string field = std::exchange(request.format->field, format.field);
    const bool is_same = *request.format == format;
    if (is_same) return std::nullopt;
    return ApiError::bad_field(name, absl::StrCat("'", first_, "' and '", to_absl(name),
                                                  "' both say how the answer has to look; leave one out."));
  }
  first_ = std::string(name);
  request.format = std::move(format);
  return std::nullopt;
}

Fault GivenFormat::take(std::string_view name, dom::element value, GenerateRequest& request) {
  if (is_off(value)) return std::nullopt;
  if (name == "guided_whitespace_pattern")
    return unsupported(name, "white space is JSON's, or one space behind commas and colons");
  if (name == "response_format" || name == "structured_outputs") {
    if (!value.is_object()) return expected(name, "an object", value);
    const dom::object fields = value.get_object().value_unsafe();
    return name == "response_format" ? take_response_format(name, fields, request)
                                     : take_structured_outputs(name, fields, request);
  }
  AnswerFormat format;
  if (auto fault = read_source(find_row(kRows, name)->kind, name, value, format)) return fault;
  return add(name, std::move(format), request);
}

Fault GivenFormat::take_response_format(std::string_view name, dom::object fields, GenerateRequest& request) {
  dom::element type, schema;
  if (fields.at_key("type").get(type))
    return missing(path_of(name, "type"), "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
  const std::string_view kind = type.is_string() ? type.get_string().value_unsafe() : std::string_view();
  if (kind == "text") return std::nullopt;
  AnswerFormat format;
  if (kind == "json_object") {
    format.field = path_of(name, "type");
    // llama.cpp's.
    if (!fields.at_key("schema").get(schema) && !is_off(schema)) {
      if (auto fault = read_source(Kind::kJsonSchema, path_of(name, "schema"), schema, format)) return fault;
    }
    return add(name, std::move(format), request);
  }
  if (kind == "structural_tag") {
    std::string text;
    for (const auto field : fields) {
      if (field.key == "type") continue;
      text += text.empty() ? "{" : ",";
      append_json_string(text, field.key);
      text += ':';
      append_element_json(text, field.value);
    }
    if (text.empty()) return missing(path_of(name, "structures"), "a list of structures");
    format.kind = Kind::kStructuralTag;
    format.field = std::string(name);
    format.text = text + "}";
    return add(name, std::move(format), request);
  }
  if (kind != "json_schema") {
    return expected(path_of(name, "type"), "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"",
                    type);
  }
  const std::string param = path_of(name, "json_schema");
  dom::element wrapper, label;
  if (fields.at_key("json_schema").get(wrapper) || !wrapper.is_object())
    return missing(param, "an object with the member 'schema'");
  if (wrapper["schema"].get(schema) || schema.is_null())
    return missing(path_of(param, "schema"), "a JSON schema");
  if (!wrapper["name"].get(label) && !label.is_null() && !label.is_string())
    return expected(path_of(param, "name"), "a text", label);
  if (auto fault = read_source(Kind::kJsonSchema, path_of(param, "schema"), schema, format)) return fault;
  return add(name, std::move(format), request);
}

Fault GivenFormat::take_structured_outputs(std::string_view name, dom::object fields,
                                           GenerateRequest& request) {
  constexpr std::string_view kRule =
      "exactly one of 'json', 'regex', 'choice', 'grammar', 'json_object' and 'structural_tag'";
  std::optional<AnswerFormat> found;
  bool any_whitespace = true;
  std::string_view empty;
  for (const auto field : fields) {
    if (is_off(field.value)) {
      if (!field.value.is_null() && find_row(kMembers, field.key) != nullptr) empty = field.key;
      continue;
    }
    const std::string param = path_of(name, field.key);
    if (field.key == "disable_any_whitespace") {
      bool disables = false;
      if (auto fault = read_bool(param, field.value, disables)) return fault;
      any_whitespace = !disables;
    } else if (field.key == "disable_additional_properties") {
      return unsupported(param, "say \"additionalProperties\": false in the schema");
    } else if (field.key == "whitespace_pattern") {
      return unsupported(param, "white space is JSON's, or one space behind commas and colons");
    } else if (const Row* row = find_row(kMembers, field.key)) {
      if (found) {
        return ApiError::bad_field(param, absl::StrCat("'", to_absl(name), "' must have ", to_absl(kRule),
                                                       ", not '", found->field, "' and '", param, "'."));
      }
      if (auto fault = read_source(row->kind, param, field.value, found.emplace())) return fault;
    }
  }
  if (!found) {
    return ApiError::bad_field(
        empty.empty() ? std::string(name) : path_of(name, empty),
        absl::StrCat(
            "'", to_absl(name), "' must have ", to_absl(kRule),
            empty.empty() ? "." : absl::StrCat("; an empty or false '", to_absl(empty), "' is none.")));
  }
  found->any_whitespace = any_whitespace;
  return add(name, *std::move(found), request);
}

}  // namespace troupe
