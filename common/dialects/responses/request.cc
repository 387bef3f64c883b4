#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/responses/items.h"
#include "common/dialects/responses/responses.h"

namespace troupe::dialect::responses {
namespace {

// Fields that would need a store, or work that is the server's own.
Fault refuse_kept(bj::object& fields) {
  for (const std::string_view name : {"previous_response_id", "conversation"}) {
    if (!take(fields, name).is_null())
      return unsupported(name, "nothing is kept here: send the conversation so far, whole, in 'input'");
  }
  for (const std::string_view name : {"prompt", "context_management"})
    if (!take(fields, name).is_null()) return unsupported(name, "leave it out");
  bool background = false;
  if (auto fault = take_flag(fields, "background", background)) return fault;
  if (background) return unsupported("background", "leave it out or set it to false");
  bool store = false;
  return take_flag(fields, "store", store);  // nothing is, and the answer says so
}

Fault read_tool(size_t index, const bj::value& tool, bj::array& out) {
  const std::string path = path_of("tools", index);
  if (!tool.is_object()) return wrong(path, "an object with type and name");
  const bj::object& fields = tool.get_object();
  if (text_member(fields, "type") != "function")
    return unsupported(path + ".type", "only tools that the client runs are, whose type is \"function\"");
  if (text_member(fields, "name").empty()) return required(path + ".name", "a string");
  bj::object function;
  for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
    const bj::value* value = fields.if_contains(name);
    if (value != nullptr && !value->is_null()) function[name] = *value;
  }
  out.push_back(bj::object{{"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

Fault read_tools(bj::object& fields, bj::object& chat) {
  std::optional<bj::array> tools;
  if (auto fault = take_array(fields, "tools", tools)) return fault;
  bj::array list;
  for (size_t i = 0; tools && i < tools->size(); ++i)
    if (auto fault = read_tool(i, (*tools)[i], list)) return fault;
  if (!list.empty()) chat["tools"] = std::move(list);
  const bj::value choice = take(fields, "tool_choice");
  if (choice.is_string()) {
    chat["tool_choice"] = choice;
  } else if (choice.is_object()) {
    const std::string_view name = text_member(choice.get_object(), "name");
    if (text_member(choice.get_object(), "type") != "function" || name.empty())
      return unsupported("tool_choice.type", "name a function of 'tools', or say auto, none or required");
    chat["tool_choice"] =
        bj::object{{"type", "function"}, {"function", bj::object{{"name", bj::string_view(name)}}}};
  } else if (!choice.is_null()) {
    return wrong("tool_choice", "a string or an object");
  }
  return std::nullopt;
}

// `text`: {"format": {"type": "text" | "json_object" | "json_schema", …}, "verbosity"}.
Fault read_format(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> text, format;
  if (auto fault = take_object(fields, "text", text)) return fault;
  if (!text) return std::nullopt;
  const bj::value verbosity = take(*text, "verbosity");
  if (!verbosity.is_null() && !(verbosity.is_string() && verbosity.get_string() == "medium"))
    return unsupported("text.verbosity", "leave it out or set it to \"medium\"");
  if (take_object(*text, "format", format)) return wrong("text.format", "an object");
  const std::string_view type = format ? text_member(*format, "type") : "text";
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    chat["response_format"] = bj::object{{"type", "json_object"}};
  } else if (type == "json_schema") {
    take(*format, "type");
    chat["response_format"] = bj::object{{"type", "json_schema"}, {"json_schema", *std::move(format)}};
  } else {
    return unsupported("text.format.type", "it is text, json_object or json_schema");
  }
  return std::nullopt;
}

Fault read_reasoning(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> reasoning;
  if (auto fault = take_object(fields, "reasoning", reasoning)) return fault;
  if (!reasoning) return std::nullopt;
  move_member(*reasoning, "effort", chat, "reasoning_effort");
  move_member(*reasoning, "max_tokens", chat, "thinking_token_budget");
  return std::nullopt;  // a summary is not made: thoughts come as they are
}

// `include`: of all that may be asked for an answer of ours can have log-probabilities.
Fault read_include(bj::object& fields, bj::object& chat) {
  std::optional<bj::array> include;
  if (auto fault = take_array(fields, "include", include)) return fault;
  const bj::value count = take(fields, "top_logprobs");
  for (size_t i = 0; include && i < include->size(); ++i) {
    const bj::value& item = (*include)[i];
    if (!item.is_string()) return wrong(path_of("include", i), "a string");
    if (item.get_string() == "message.output_text.logprobs") chat["logprobs"] = true;
  }
  if (!count.is_null() && chat.contains("logprobs")) chat["top_logprobs"] = count;
  return std::nullopt;
}

Fault read_user(bj::object& fields, bj::object& chat) {
  for (const std::string_view name : {"user", "safety_identifier"}) {
    const bj::value user = take(fields, name);
    if (user.is_null()) continue;
    if (!user.is_string()) return wrong(name, "a string");
    chat["user"] = user;
  }
  return std::nullopt;
}

Fault read_stream(bj::object& fields, bj::object& chat) {
  bool stream = false;
  if (auto fault = take_flag(fields, "stream", stream)) return fault;
  take(fields, "stream_options");
  if (!stream) return std::nullopt;
  chat["stream"] = true;
  chat["stream_options"] = bj::object{{"include_usage", true}, {"continuous_usage_stats", true}};
  return std::nullopt;
}

Fault read_prompt(bj::object& fields, bj::object& chat, TranslatedRequest& out) {
  std::optional<std::string> model, instructions;
  if (auto fault = take_text(fields, "model", model)) return fault;
  out.model = model.value_or("");
  if (model) chat["model"] = *model;
  if (auto fault = take_text(fields, "instructions", instructions)) return fault;
  const bj::value input = take(fields, "input");
  if (input.is_null()) return required("input", "a string or a list of items");
  ItemReader items;
  if (auto fault = items.read(input, instructions.value_or(""))) return fault;
  chat["messages"] = items.take_messages();
  out.renames = items.take_renames();
  return std::nullopt;
}

Fault read_fields(bj::object& fields, bj::object& chat, TranslatedRequest& out) {
  if (auto fault = refuse_kept(fields)) return fault;
  if (auto fault = read_prompt(fields, chat, out)) return fault;
  if (auto fault = read_tools(fields, chat)) return fault;
  if (auto fault = read_format(fields, chat)) return fault;
  if (auto fault = read_reasoning(fields, chat)) return fault;
  if (auto fault = read_include(fields, chat)) return fault;
  if (auto fault = read_user(fields, chat)) return fault;
  if (auto fault = read_stream(fields, chat)) return fault;
  move_member(fields, "max_output_tokens", chat, "max_tokens");
  for (const std::string_view name :
       {"service_tier", "max_tool_calls", "metadata", "n", "prompt_cache_retention"})
    take(fields, name);
  return std::nullopt;
}

// The fields of its request that an answer repeats.
bj::object echo_of(const bj::object& fields) {
  bj::object echoed;
  const auto copy = [&](std::string_view name, bj::value otherwise) {
    const bj::value* value = fields.if_contains(name);
    echoed[name] = value == nullptr ? std::move(otherwise) : *value;
  };
  copy("instructions", nullptr);
  copy("max_output_tokens", nullptr);
  copy("metadata", bj::object());
  copy("parallel_tool_calls", true);
  copy("reasoning", bj::object{{"effort", nullptr}, {"summary", nullptr}});
  copy("temperature", 1.0);
  copy("text", bj::object{{"format", bj::object{{"type", "text"}}}});
  copy("tool_choice", "auto");
  copy("tools", bj::array());
  copy("top_p", 1.0);
  copy("truncation", "disabled");
  copy("user", nullptr);
  return echoed;
}

}  // namespace

ApiResult<TranslatedRequest> translate(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/v1/chat/completions";
  bj::object echoed = echo_of(*fields);
  bj::object chat;
  if (auto fault = read_fields(*fields, chat, out)) return *std::move(fault);
  add_rest(*std::move(fields), chat);
  out.renames.insert(out.renames.end(), {{"max_tokens", "max_output_tokens"},
                                         {"response_format", "text.format"},
                                         {"response_format.json_schema", "text.format"},
                                         {"reasoning_effort", "reasoning.effort"},
                                         {"thinking_token_budget", "reasoning.max_tokens"},
                                         {"tool_choice.function.name", "tool_choice.name"},
                                         {"messages", "input"}});
  out.body = to_json(chat);
  out.answer = make_answer(std::move(echoed));
  return out;
}

}  // namespace troupe::dialect::responses
