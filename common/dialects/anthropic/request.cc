#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/anthropic/anthropic.h"
#include "common/dialects/anthropic/content.h"

namespace troupe::dialect::anthropic {
namespace {

// Says a count in place of a chat's tokens.
class CountAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    return to_json(bj::object{{"input_tokens", count_member(body, "count")}});
  }
  std::string error(const AnswerError& error) const override { return make_answer()->error(error); }
};

Fault read_conversation(bj::object& fields, bj::object& chat, Renames& renames) {
  Conversation conversation;
  const bj::value system = take(fields, "system");
  if (!system.is_null())
    if (auto fault = add_system("system", system, conversation)) return fault;
  std::optional<bj::array> messages;
  if (auto fault = take_array(fields, "messages", messages)) return fault;
  if (!messages || messages->empty()) return required("messages", "at least one message");
  for (size_t i = 0; i < messages->size(); ++i)
    if (auto fault = add_message(i, (*messages)[i], conversation)) return fault;
  if (conversation.goes_on) {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  chat["messages"] = std::move(conversation.messages);
  std::move(conversation.renames.begin(), conversation.renames.end(), std::back_inserter(renames));
  return std::nullopt;
}

Fault read_tool(size_t index, const bj::value& tool, bj::array& out) {
  const std::string path = path_of("tools", index);
  if (!tool.is_object()) return wrong(path, "an object with name and input_schema");
  const bj::object& fields = tool.get_object();
  const std::string_view type = text_member(fields, "type");
  if (!type.empty() && type != "custom")
    return unsupported(path + ".type", "only tools that the client runs are, whose type is \"custom\"");
  const std::string_view name = text_member(fields, "name");
  const bj::object* schema = object_member(fields, "input_schema");
  if (name.empty()) return required(path + ".name", "a string");
  if (schema == nullptr) return required(path + ".input_schema", "an object, JSON Schema");
  bj::object function{{"name", bj::string_view(name)}};
  if (const bj::value* description = fields.if_contains("description"))
    if (!description->is_null()) function["description"] = *description;
  function["parameters"] = *schema;
  if (const bj::value* strict = fields.if_contains("strict"))
    if (!strict->is_null()) function["strict"] = *strict;
  out.push_back(bj::object{{"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

Fault read_tools(bj::object& fields, bj::object& chat) {
  std::optional<bj::array> tools;
  if (auto fault = take_array(fields, "tools", tools)) return fault;
  if (!tools || tools->empty()) return std::nullopt;
  bj::array list;
  for (size_t i = 0; i < tools->size(); ++i)
    if (auto fault = read_tool(i, (*tools)[i], list)) return fault;
  chat["tools"] = std::move(list);
  return std::nullopt;
}

// {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"}
Fault read_choice(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> choice;
  if (auto fault = take_object(fields, "tool_choice", choice)) return fault;
  if (!choice) return std::nullopt;
  const std::string_view type = text_member(*choice, "type"), name = text_member(*choice, "name");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = bj::string_view(type);
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    if (name.empty()) return required("tool_choice.name", "the name of a tool");
    chat["tool_choice"] =
        bj::object{{"type", "function"}, {"function", bj::object{{"name", bj::string_view(name)}}}};
  } else {
    return wrong("tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\"");
  }
  bool one = false;
  if (take_flag(*choice, "disable_parallel_tool_use", one))
    return wrong("tool_choice.disable_parallel_tool_use", "true or false");
  if (one) chat["parallel_tool_calls"] = false;
  return std::nullopt;
}

// {"type": "enabled", "budget_tokens"} | {"type": "adaptive"} | {"type": "disabled"}
Fault read_thinking(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> thinking;
  if (auto fault = take_object(fields, "thinking", thinking)) return fault;
  if (!thinking) return std::nullopt;
  const std::string_view type = text_member(*thinking, "type");
  const bool on = type == "enabled" || type == "adaptive";
  if (!on && type != "disabled") return wrong("thinking.type", "\"enabled\", \"adaptive\" or \"disabled\"");
  std::optional<bj::object> kwargs;
  if (auto fault = take_object(fields, "chat_template_kwargs", kwargs)) return fault;
  if (!kwargs) kwargs.emplace();
  kwargs->emplace("enable_thinking", on);
  chat["chat_template_kwargs"] = *std::move(kwargs);
  if (on) move_member(*thinking, "budget_tokens", chat, "thinking_token_budget");
  return std::nullopt;
}

// {"format": {"type": "json_schema", "schema"}, "effort"}; `output_format` is the format's older place.
Fault read_output(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> output, format;
  if (auto fault = take_object(fields, "output_config", output)) return fault;
  if (auto fault = take_object(fields, "output_format", format)) return fault;
  if (output) {
    move_member(*output, "effort", chat, "reasoning_effort");
    if (take_object(*output, "format", format)) return wrong("output_config.format", "an object");
  }
  if (!format) return std::nullopt;
  const bj::object* schema = object_member(*format, "schema");
  if (text_member(*format, "type") != "json_schema" || schema == nullptr)
    return wrong("output_config.format", "{\"type\": \"json_schema\", \"schema\": {…}}");
  bj::object named{{"name", "answer"}, {"schema", *schema}, {"strict", true}};
  chat["response_format"] = bj::object{{"type", "json_schema"}, {"json_schema", std::move(named)}};
  return std::nullopt;
}

Fault read_user(bj::object& fields, bj::object& chat) {
  std::optional<bj::object> metadata;
  if (auto fault = take_object(fields, "metadata", metadata)) return fault;
  if (!metadata) return std::nullopt;
  const bj::value user = take(*metadata, "user_id");
  if (!user.is_null() && !user.is_string()) return wrong("metadata.user_id", "a string");
  if (!user.is_null()) chat["user"] = user;
  return std::nullopt;
}

// Fields that would have the server do something that it does not.
Fault refuse_servers_work(bj::object& fields) {
  for (const std::string_view name : {"mcp_servers", "container", "context_management", "inference_geo"}) {
    const bj::value value = take(fields, name);
    const bool empty = value.is_null() || (value.is_array() && value.get_array().empty()) ||
                       (value.is_object() && value.get_object().empty());
    if (!empty) return unsupported(name, "leave it out");
  }
  for (const std::string_view name : {"service_tier", "cache_control", "betas", "speed"}) take(fields, name);
  return std::nullopt;
}

// All that both paths read: what the prompt is made of.
Fault read_prompt(bj::object& fields, bj::object& chat, TranslatedRequest& out) {
  std::optional<std::string> model;
  if (auto fault = take_text(fields, "model", model)) return fault;
  if (model) chat["model"] = *model;
  out.model = model.value_or("");
  if (auto fault = read_conversation(fields, chat, out.renames)) return fault;
  if (auto fault = read_tools(fields, chat)) return fault;
  if (auto fault = read_choice(fields, chat)) return fault;
  if (auto fault = read_thinking(fields, chat)) return fault;
  if (auto fault = read_output(fields, chat)) return fault;
  return refuse_servers_work(fields);
}

Fault read_messages_body(bj::object& fields, bj::object& chat, TranslatedRequest& out) {
  if (!fields.contains("max_tokens")) return required("max_tokens", "an integer of at least 1");
  if (auto fault = read_prompt(fields, chat, out)) return fault;
  if (auto fault = read_user(fields, chat)) return fault;
  bool stream = false;
  if (auto fault = take_flag(fields, "stream", stream)) return fault;
  if (stream) {
    chat["stream"] = true;
    chat["stream_options"] = bj::object{{"include_usage", true}, {"continuous_usage_stats", true}};
  }
  bj::value stops = take(fields, "stop_sequences");
  if (stops.is_array() && stops.get_array().empty()) stops = nullptr;
  if (!stops.is_null()) chat["stop"] = std::move(stops);
  for (const std::string_view name : {"n", "logprobs", "top_logprobs", "stop", "stream_options"})
    take(fields, name);
  return std::nullopt;
}

const Renames& own_names() {
  static const Renames names{{"stop", "stop_sequences"},
                             {"thinking_token_budget", "thinking.budget_tokens"},
                             {"response_format", "output_config.format"},
                             {"response_format.json_schema", "output_config.format"},
                             {"reasoning_effort", "output_config.effort"},
                             {"tool_choice.function.name", "tool_choice.name"},
                             {"user", "metadata.user_id"}};
  return names;
}

}  // namespace

ApiResult<TranslatedRequest> translate_messages(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/v1/chat/completions";
  out.renames = own_names();
  bj::object chat;
  if (auto fault = read_messages_body(*fields, chat, out)) return *std::move(fault);
  add_rest(*std::move(fields), chat);
  out.body = to_json(chat);
  out.answer = make_answer();
  return out;
}

ApiResult<TranslatedRequest> translate_count(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/tokenize";
  if (auto fault = refuse_persona(*fields)) return *std::move(fault);
  bj::object chat;
  if (auto fault = read_prompt(*fields, chat, out)) return *std::move(fault);
  // A chat's prompt is made of these, too; the rest has no tokens.
  for (const std::string_view name : {"chat_template_kwargs", "documents", "reasoning_effort"})
    if (!chat.contains(name)) move_member(*fields, name, chat, name);
  out.body = to_json(chat);
  out.answer = std::make_unique<CountAnswer>();
  return out;
}

}  // namespace troupe::dialect::anthropic
