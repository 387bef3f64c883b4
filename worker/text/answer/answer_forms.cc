#include "worker/text/answer/answer_forms.h"

#include <algorithm>

namespace troupe {
namespace {

using Reader = std::unique_ptr<CallReader>;

Reader hermes_reader(bool) {
  return json_call_reader(/*known_only=*/false);
}
Reader llama_reader(bool behind_opening) {
  return json_call_reader(/*known_only=*/!behind_opening);
}
Reader mistral_reader(bool) {
  return mistral_call_reader();
}
Reader python_reader(bool) {
  return python_call_reader();
}
Reader gemma_reader(bool) {
  return gemma_call_reader();
}
Reader qwen_reader(bool) {
  return xml_call_reader({.name_ends = {">"},
                          .key_opens = "<parameter=",
                          .key_ends = ">",
                          .value_opens = "",
                          .value_ends = {"\n</parameter>", "</parameter>", "\n</function>", "</function>"},
                          .call_ends = "</function>"});
}
Reader glm_reader(bool) {
  return xml_call_reader({.name_ends = {"\n", "<arg_key>", "</tool_call>"},
                          .key_opens = "<arg_key>",
                          .key_ends = "</arg_key>",
                          .value_opens = "<arg_value>",
                          .value_ends = {"</arg_value>"},
                          .call_ends = "</tool_call>"});
}
Reader deepseek_reader(bool) {
  return named_call_reader({.separator = "<｜tool▁sep｜>", .ends = {"<｜tool▁call▁end｜>"}});
}
Reader deepseek_v3_reader(bool) {
  return named_call_reader(
      {.separator = "<｜tool▁sep｜>",
       .ends = {"\n```<｜tool▁call▁end｜>", "```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"},
       .has_kind = true});
}
Reader kimi_reader(bool) {
  return named_call_reader(
      {.separator = "<|tool_call_argument_begin|>", .ends = {"<|tool_call_end|>"}, .id_is_name = true});
}

// The end of a message, which OpenAI's models call with, ends the answer, too.
Reader harmony_reader(bool) {
  return named_call_reader(
      {.separator = "<|message|>", .ends = {"<|call|>", "<|end|>", "<|start|>"}, .first_word = true});
}

const std::vector<ToolForm>& tool_forms() {
  static const std::vector<ToolForm> forms = {
      {.name = "hermes", .calls = {"<tool_call>"}, .endings = {"</tool_call>"}, .reader = hermes_reader},
      {.name = "qwen3_coder",
       .calls = {"<function="},
       .openings = {"<tool_call>"},
       .endings = {"</tool_call>"},
       .reader = qwen_reader},
      {.name = "llama3_json",
       .openings = {"<|python_tag|>"},
       .bracket = '{',
       .separator = ';',
       .reader = llama_reader},
      {.name = "pythonic", .bracket = '[', .reader = python_reader},
      {.name = "llama4_pythonic",
       .openings = {"<|python_start|>"},
       .endings = {"<|python_end|>"},
       .bracket = '[',
       .reader = python_reader},
      {.name = "mistral", .calls = {"[TOOL_CALLS]"}, .short_ids = true, .reader = mistral_reader},
      {.name = "deepseek_v3",
       .calls = {"<｜tool▁call▁begin｜>"},
       .openings = {"<｜tool▁calls▁begin｜>"},
       .endings = {"<｜tool▁calls▁end｜>"},
       .reader = deepseek_v3_reader},
      {.name = "deepseek_v31",
       .calls = {"<｜tool▁call▁begin｜>"},
       .openings = {"<｜tool▁calls▁begin｜>"},
       .endings = {"<｜tool▁calls▁end｜>"},
       .reader = deepseek_reader},
      {.name = "glm45", .calls = {"<tool_call>"}, .reader = glm_reader},
      {.name = "kimi_k2",
       .calls = {"<|tool_call_begin|>"},
       .openings = {"<|tool_calls_section_begin|>"},
       .endings = {"<|tool_calls_section_end|>"},
       .ends_thought = true,
       .reader = kimi_reader},
      {.name = "gemma4", .calls = {"<|tool_call>"}, .endings = {"<tool_call|>"}, .reader = gemma_reader},
      {.name = "openai",
       .calls = {"<|channel|>commentary to=functions.", "to=functions."},
       .reader = harmony_reader},
  };
  return forms;
}

// A line break beside a mark is the mark's.
const std::vector<ThoughtForm>& thought_forms() {
  static const std::vector<ThoughtForm> forms = {
      {.name = "qwen3", .opens = {"<think>"}, .closes = {"\n</think>", "</think>"}},
      {.name = "glm45", .opens = {"<think>"}, .closes = {"\n</think>", "</think>"}},
      {.name = "kimi_k2", .opens = {"<think>"}, .closes = {"\n</think>", "</think>"}},
      {.name = "deepseek_v3", .opens = {"<think>"}, .closes = {"\n</think>", "</think>"}},
      {.name = "deepseek_r1",
       .opens = {"<think>"},
       .closes = {"\n</think>", "</think>"},
       .is_unopened = true},
      {.name = "mistral", .opens = {"[THINK]"}, .closes = {"\n[/THINK]", "[/THINK]"}, .only_first = false},
      {.name = "gemma4",
       .opens = {"<|channel>thought"},
       .closes = {"\n<channel|>", "<channel|>"},
       .only_first = false},
      {.name = "minimax_m2", .opens = {"<think>"}, .closes = {"\n</think>", "</think>"}, .is_unopened = true},
      {.name = "openai_gptoss",
       .opens = {"<|channel|>analysis<|message|>"},
       .closes = {"<|end|>", "<|start|>assistant"},
       .frames = {"<|channel|>final<|message|>", "<|channel|>commentary<|message|>", "<|start|>assistant",
                  "<|end|>", "<|return|>"},
       .only_first = false},
      {.name = "minimax_m3", .opens = {"<mm:think>"}, .closes = {"\n</mm:think>", "</mm:think>"}},
  };
  return forms;
}

// A form that a template shows by texts that only it has. The first one found counts.
struct Shown {
  std::string_view text, form;
};
constexpr Shown kShownTools[] = {
    {"<|tool_calls_section_begin|>", "kimi_k2"},
    {"<｜tool▁sep｜>", "deepseek_v31"},
    {"[TOOL_CALLS]", "mistral"},
    {"<|tool_call>", "gemma4"},
    {"to=functions.", "openai"},
    {"<arg_key>", "glm45"},
    {"<function=", "qwen3_coder"},
    {"<tool_call>", "hermes"},
    {"<|python_start|>", "llama4_pythonic"},
    {"func_name1(params_name1=params_value1", "pythonic"},
    {"<|python_tag|>", "llama3_json"},
    {"\"parameters\": dictionary of argument name", "llama3_json"},
};
constexpr Shown kShownThoughts[] = {
    {"<mm:think>", "minimax_m3"},    {"[THINK]", "mistral"}, {"<|channel|>analysis", "openai_gptoss"},
    {"<|channel>thought", "gemma4"}, {"</think>", "qwen3"},  {"<think>", "qwen3"},
};

bool has_text(std::span<const std::string> texts, std::string_view wanted) {
  return std::any_of(texts.begin(), texts.end(),
                     [wanted](const std::string& text) { return text.find(wanted) != std::string::npos; });
}

template <size_t N>
std::string_view name_shown(const Shown (&shown)[N], std::span<const std::string> texts) {
  for (const auto& [text, form] : shown) {
    if (has_text(texts, text)) return form;
  }
  return {};
}

template <typename Form>
const Form* form_named(const std::vector<Form>& forms, std::string_view name) {
  const auto found =
      std::find_if(forms.begin(), forms.end(), [name](const Form& form) { return form.name == name; });
  return found == forms.end() ? nullptr : &*found;
}

template <typename Form>
std::vector<std::string_view> names_of(const std::vector<Form>& forms) {
  std::vector<std::string_view> names;
  for (const Form& form : forms) names.push_back(form.name);
  return names;
}

}  // namespace

const ToolForm* tool_form(std::string_view name) {
  return form_named(tool_forms(), name);
}

const ThoughtForm* thought_form(std::string_view name) {
  return form_named(thought_forms(), name);
}

std::vector<std::string_view> tool_form_names() {
  return names_of(tool_forms());
}

std::vector<std::string_view> thought_form_names() {
  return names_of(thought_forms());
}

const ToolForm* tool_form_shown(std::span<const std::string> texts) {
  std::string_view name = name_shown(kShownTools, texts);
  if (name == "deepseek_v31" && has_text(texts, "```json")) name = "deepseek_v3";
  return tool_form(name);
}

const ThoughtForm* thought_form_shown(std::span<const std::string> texts) {
  return thought_form(name_shown(kShownThoughts, texts));
}

std::vector<std::string_view> marks_of(const ToolForm* tools, const ThoughtForm* thoughts) {
  std::vector<std::string_view> marks;
  const auto add = [&marks](const std::vector<std::string_view>& more) {
    marks.insert(marks.end(), more.begin(), more.end());
  };
  if (tools != nullptr) {
    add(tools->calls);
    add(tools->openings);
    add(tools->endings);
    // Marks within calls.
    static constexpr std::string_view kInner[] = {"<|\"|>",
                                                  "<｜tool▁sep｜>",
                                                  "<｜tool▁call▁end｜>",
                                                  "<|tool_call_argument_begin|>",
                                                  "<|tool_call_end|>",
                                                  "<|message|>",
                                                  "<|call|>",
                                                  "[ARGS]",
                                                  "[CALL_ID]",
                                                  "<arg_key>",
                                                  "</arg_key>",
                                                  "<arg_value>",
                                                  "</arg_value>",
                                                  "</tool_call>",
                                                  "</function>",
                                                  "<parameter=",
                                                  "</parameter>"};
    marks.insert(marks.end(), std::begin(kInner), std::end(kInner));
  }
  if (thoughts != nullptr) {
    add(thoughts->opens);
    add(thoughts->closes);
    add(thoughts->frames);
  }
  return marks;
}

}  // namespace troupe
