#include "worker/input/call_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

using grammar::Format;

constexpr uint32_t kUnbounded = grammar::RegexSet::kUnbounded;

const bj::value* member(const bj::value& value, const char* name) {
  return value.is_object() ? value.get_object().if_contains(name) : nullptr;
}

std::string_view text_of(const bj::value* value) {
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

// Arguments are an object, whatever else the schema says or leaves open.
std::string arguments_schema(const bj::value* parameters) {
  if (parameters == nullptr || parameters->is_null())
    return R"({"type":"object","properties":{},"additionalProperties":false})";
  if (!parameters->is_object()) return to_json(*parameters);  // its compiler says what is wrong
  bj::value schema = *parameters;
  schema.get_object()["type"] = "object";
  return to_json(schema);
}

Format optional_space() {
  return Format::optional(Format::literal(" "));
}

Format line_breaks() {
  return Format::repeat(Format::literal("\n"), 0, 2);
}

Format arguments_of(const CalledFunction& function) {
  Format arguments{.kind = function.schema.empty() ? Format::Kind::kObject : Format::Kind::kSchema};
  arguments.text = function.schema;
  arguments.name = function.source;
  return arguments;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace

ApiResult<std::vector<CalledFunction>> called_functions(std::string_view tools_json, std::string_view only) {
  auto tools = parse_json(tools_json);
  if (!tools.ok()) return ApiError::bad_field("tools", to_std(tools.status().message()));
  std::vector<CalledFunction> functions;
  size_t index = 0;
  for (const bj::value& tool : tools->get_array()) {
    const std::string path = absl::StrCat("tools[", index++, "].function");
    const bj::value* const function = member(tool, "function");
    const std::string_view name =
        function == nullptr ? std::string_view() : text_of(member(*function, "name"));
    if (name.empty() || (!only.empty() && name != only)) continue;
    const bj::value* const strict = member(*function, "strict");
    functions.push_back({.name = std::string(name),
                         .schema = arguments_schema(member(*function, "parameters")),
                         .source = path + ".parameters",
                         .is_strict = strict != nullptr && strict->is_bool() && strict->get_bool()});
  }
  if (functions.empty()) return ApiError::bad_field("tools", "'tools' has no function with a name.");
  return functions;
}

CallFormat::CallFormat(const ToolForm& form, const ToolSchemas* schemas, MarkSpeller* speller)
    : form_(form), schemas_(*schemas), speller_(*speller) {
  if (form.name == "hermes") style_ = Style::kHermes;
  if (form.name == "llama3_json") style_ = Style::kLlama;
  if (form.name == "mistral") style_ = speller->has_special("[ARGS]") ? Style::kMistral : Style::kMistralList;
  if (form.name == "deepseek_v31") style_ = Style::kDeepSeek;
  if (form.name == "deepseek_v3") style_ = Style::kDeepSeekV3;
  if (form.name == "kimi_k2") style_ = Style::kKimi;
  if (form.name == "qwen3_coder") style_ = Style::kQwenCoder;
  if (form.name == "glm45") style_ = Style::kGlm;
  if (form.name.ends_with("pythonic")) style_ = Style::kPythonic;
}

Format CallFormat::mark(std::string_view text) {
  return Format::literal(speller_.spell(text));
}

// {"name": NAME, ARGUMENTS: {…}}
Format CallFormat::json_call(const CalledFunction& function, std::string_view arguments) {
  std::string name;
  append_json_string(name, function.name);
  return Format::sequence({Format::literal("{\"name\":"), optional_space(), Format::literal(name + ","),
                           optional_space(), Format::literal(absl::StrCat("\"", to_absl(arguments), "\":")),
                           optional_space(), arguments_of(function), Format::literal("}")});
}

// Arguments between tags, whose strings are bare text.
Format CallFormat::tagged_arguments(const CalledFunction& function) {
  Format format{.kind = Format::Kind::kArguments, .text = function.schema, .name = function.source};
  grammar::ArgumentLayout& layout = format.arguments;
  layout.has_text = true;
  if (function.schema.empty()) {
    format.text = R"({"type":"object"})";
  } else {
    layout.read_as_json = schemas_.read_as_json(function.name);
    layout.others_read_as_json = schemas_.types_of_others(function.name) != kStringType;
  }
  if (style_ == Style::kGlm) {
    format.json.barred = {"</arg_value>"};
    layout.name_opens = speller_.spell("<arg_key>");
    layout.name_ends = speller_.spell("</arg_key>");
    layout.value_opens = speller_.spell("<arg_value>");
    layout.value_ends = speller_.spell("</arg_value>");
  } else {
    format.json.barred = {"</parameter>", "</function>"};
    layout.name_opens = speller_.spell("<parameter=");
    layout.name_ends = ">\n";
    layout.value_ends = speller_.spell("\n</parameter>");
  }
  return format;
}

Format CallFormat::rest_of_call(const CalledFunction& function) {
  Format name = Format::literal(function.name);
  Format arguments = arguments_of(function);
  switch (style_) {
    case Style::kHermes:
      return Format::sequence(
          {line_breaks(), json_call(function, "arguments"), line_breaks(), mark("</tool_call>")});
    case Style::kMistral:
      return Format::sequence({std::move(name), mark("[ARGS]"), std::move(arguments)});
    case Style::kDeepSeek:
      return Format::sequence(
          {std::move(name), mark("<｜tool▁sep｜>"), std::move(arguments), mark("<｜tool▁call▁end｜>")});
    case Style::kDeepSeekV3:
      return Format::sequence({Format::literal("function"), mark("<｜tool▁sep｜>"), std::move(name),
                               Format::literal("\n```json\n"), std::move(arguments), Format::literal("\n```"),
                               mark("<｜tool▁call▁end｜>")});
    case Style::kQwenCoder:
      return Format::sequence(
          {std::move(name), Format::literal(">"), tagged_arguments(function), mark("</function>")});
    case Style::kGlm:
      return Format::sequence({std::move(name), tagged_arguments(function), mark("</tool_call>")});
    default:  // Kimi's
      return Format::sequence({Format::literal("functions." + function.name + ":"),
                               Format{.kind = Format::Kind::kRegex, .text = "0|[1-9][0-9]?"},
                               mark("<|tool_call_argument_begin|>"), std::move(arguments),
                               mark("<|tool_call_end|>")});
  }
}

Format CallFormat::rest_of_calls(std::span<const CalledFunction> functions) {
  std::vector<Format> rests;
  for (const CalledFunction& function : functions) rests.push_back(rest_of_call(function));
  return Format::either(std::move(rests));
}

Format CallFormat::llama_calls(std::span<const CalledFunction> functions, bool parallel) {
  std::vector<Format> calls;
  for (const CalledFunction& function : functions) calls.push_back(json_call(function, "parameters"));
  Format all = Format::repeat(Format::either(std::move(calls)), 1, parallel ? kUnbounded : 1);
  all.parts.push_back(Format::sequence({Format::literal(";"), optional_space()}));
  return all;
}

Format CallFormat::python_calls(std::span<const CalledFunction> functions, bool parallel) {
  std::vector<Format> calls;
  for (const CalledFunction& function : functions) {
    Format arguments{.kind = Format::Kind::kArguments, .text = function.schema, .name = function.source};
    if (function.schema.empty()) arguments.text = R"({"type":"object"})";
    arguments.json.notation = grammar::Notation::kPython;
    arguments.arguments.name_ends = "=";
    arguments.arguments.separator = ",";
    calls.push_back(
        Format::sequence({Format::literal(function.name + "("), std::move(arguments), Format::literal(")")}));
  }
  Format all = Format::repeat(Format::either(std::move(calls)), 1, parallel ? kUnbounded : 1);
  all.parts.push_back(Format::sequence({Format::literal(","), optional_space()}));
  Format list = Format::sequence({Format::literal("["), std::move(all), Format::literal("]")});
  if (form_.openings.empty()) return list;
  Format announced = Format::sequence({mark(form_.openings[0]), list, mark(form_.endings[0])});
  return Format::either({std::move(list), std::move(announced)});
}

Format CallFormat::mistral_list(std::span<const CalledFunction> functions, bool parallel) {
  std::vector<Format> calls;
  for (const CalledFunction& function : functions) calls.push_back(json_call(function, "arguments"));
  Format all = Format::repeat(Format::either(std::move(calls)), 1, parallel ? kUnbounded : 1);
  all.parts.push_back(Format::sequence({Format::literal(","), optional_space()}));
  return Format::sequence({optional_space(), Format::literal("["), std::move(all), Format::literal("]")});
}

std::optional<ApiError> CallFormat::check_names(std::span<const CalledFunction> functions) const {
  if (style_ == Style::kHermes || style_ == Style::kLlama || style_ == Style::kMistralList)
    return std::nullopt;
  for (const CalledFunction& function : functions) {
    if (is_plain_name(function.name)) continue;
    return ApiError::bad_field(
        "tools", absl::StrCat("the function name \"", function.name,
                              "\" cannot stand in this model's calls; it may have letters, digits, '_', '-' "
                              "and '.' of ASCII."));
  }
  return std::nullopt;
}

ApiResult<Format> CallFormat::calls(std::span<const CalledFunction> functions, bool parallel) {
  if (auto fault = check_names(functions)) return *std::move(fault);
  if (style_ == Style::kLlama) return llama_calls(functions, parallel);
  if (style_ == Style::kPythonic) return python_calls(functions, parallel);
  if (style_ == Style::kMistralList)
    return Format::sequence({mark(form_.calls[0]), mistral_list(functions, parallel)});
  Format call = Format::sequence({mark(form_.calls[0]), rest_of_calls(functions)});
  const bool is_wrapped = style_ == Style::kQwenCoder;  // each call, and not all of them together
  if (is_wrapped)
    call = Format::sequence(
        {mark(form_.openings[0]), line_breaks(), std::move(call), line_breaks(), mark(form_.endings[0])});
  Format all = Format::repeat(std::move(call), 1, parallel ? kUnbounded : 1);
  if (style_ == Style::kHermes || style_ == Style::kDeepSeekV3 || style_ == Style::kGlm || is_wrapped)
    all.parts.push_back(line_breaks());
  if (form_.openings.empty() || is_wrapped) return all;
  return Format::sequence({mark(form_.openings[0]), std::move(all), mark(form_.endings[0])});
}

Format CallFormat::text_from(std::string_view first) {
  Format begin{.kind = Format::Kind::kRegex, .text = std::string(first)};
  return Format::optional(Format::sequence({std::move(begin), Format::free(readings(form_.openings))}));
}

std::vector<std::string> CallFormat::readings(const std::vector<std::string_view>& marks) {
  std::vector<std::string> all = speller_.spell_all(marks);
  for (const std::string_view mark : marks) {
    if (std::find(all.begin(), all.end(), mark) == all.end()) all.emplace_back(mark);
  }
  return all;
}

ApiResult<Format> CallFormat::text_with_calls(std::span<const CalledFunction> functions) {
  if (auto fault = check_names(functions)) return *std::move(fault);
  if (style_ == Style::kLlama)
    return Format::either({llama_calls(functions, /*parallel=*/true), text_from("[^{\\s]")});
  if (style_ == Style::kPythonic)
    return Format::either({python_calls(functions, /*parallel=*/true), text_from("[^\\[\\s]")});
  const std::vector<std::string> marks = readings(form_.calls);
  std::vector<Format> begins;
  for (const std::string& mark : marks) begins.push_back(Format::until(mark, marks));
  Format rest =
      style_ == Style::kMistralList ? mistral_list(functions, /*parallel=*/true) : rest_of_calls(functions);
  Format up_to_call = Format::sequence({Format::either(std::move(begins)), std::move(rest)});
  return Format::sequence({Format::repeat(std::move(up_to_call), 0, kUnbounded), Format::free(marks)});
}

}  // namespace troupe
