// Reads `tool_choice`.

#include "absl/strings/str_cat.h"
#include "common/api/read.h"
#include "common/json/json.h"

namespace troupe {

constexpr size_t kToolNameBytesMax = 1024;

Fault read_tool_choice(std::string_view param, dom::element value, GenerateRequest& request) {
  constexpr std::string_view kRule =
      "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": a tool's name}}";
  if (value.is_string()) {
    const std::string_view name = value.get_string().value_unsafe();
    if (name != "auto" && name != "none" && name != "required") return expected(param, kRule, value);
    request.tool_choice = name == "auto"   ? ToolChoice::kAuto
                          : name == "none" ? ToolChoice::kNone
                                           : ToolChoice::kRequired;
    return std::nullopt;
  }
  dom::element type, function, name;
  if (!value.is_object() || value["type"].get(type) || !type.is_string() ||
      type.get_string().value_unsafe() != "function" || value["function"].get(function) ||
      !function.is_object() || function["name"].get(name) || !name.is_string()) {
    return expected(param, kRule, value);
  }
  if (auto fault = read_string(absl::StrCat(to_absl(param), ".function.name"), name, kToolNameBytesMax,
                               request.called_tool))
    return fault;
  request.tool_choice = ToolChoice::kNamed;
  return std::nullopt;
}

Fault check_tool_choice(const GenerateRequest& request) {
  const bool must_call =
      request.tool_choice == ToolChoice::kRequired || request.tool_choice == ToolChoice::kNamed;
  if (!must_call) return std::nullopt;
  if (request.tools_json.empty())
    return ApiError::bad_field("tool_choice", "'tool_choice' asks for a call, but 'tools' has no tool.");
  if (request.tool_choice == ToolChoice::kRequired) return std::nullopt;
  const auto tools = parse_json(request.tools_json);
  if (tools.ok() && tools->is_array()) {
    for (const bj::value& tool : tools->get_array()) {
      const bj::value* const function =
          tool.is_object() ? tool.get_object().if_contains("function") : nullptr;
      const bj::value* const name =
          function != nullptr && function->is_object() ? function->get_object().if_contains("name") : nullptr;
      if (name != nullptr && name->is_string() && name->get_string() == request.called_tool)
        return std::nullopt;
    }
  }
  return ApiError::bad_field(
      "tool_choice.function.name",
      absl::StrCat("'tool_choice' names \"", request.called_tool, "\", which is no function of 'tools'."));
}

}  // namespace troupe
