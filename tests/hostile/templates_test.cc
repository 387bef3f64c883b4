// Every filter, method, test and operator of a chat template takes time in proportion to its text, and so do
// whole templates, however a conversation is cut into messages.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>

#include "common/json/json.h"
#include "tests/hostile/cpu_growth.h"
#include "worker/text/chat_context.h"
#include "worker/text/chat_messages.h"
#include "worker/text/chat_template.h"
#include "worker/text/final_words.h"
#include "worker/text/jinja/filter_table.h"

namespace troupe {
namespace hostile_templates_test {

// Pieces of about so many bytes, cut between characters.
std::vector<std::string> pieces_of(const std::string& text, size_t bytes) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(at + bytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// Variables that a source names: `x`, the text; `words`, a list of its pieces; `table`, a mapping by them;
// `rows`, a list of mappings.
bj::object context_of(const std::string& text, const std::string& source) {
  const auto names = [&source](const char* name) { return source.find(name) != std::string::npos; };
  bj::object context, table;
  bj::array words, rows;
  context["x"] = text;
  if (!names("words") && !names("table") && !names("rows")) return context;
  for (const std::string& piece : pieces_of(text, 16)) {
    if (names("table")) table[piece + std::to_string(table.size())] = piece;
    if (names("words")) words.emplace_back(piece);
    if (!names("rows")) continue;
    bj::object row;
    row["k"] = piece;
    rows.push_back(std::move(row));
  }
  context["words"] = std::move(words);
  context["table"] = std::move(table);
  context["rows"] = std::move(rows);
  return context;
}

void expect_linear_template(const std::string& source, const std::vector<HostileText>& texts) {
  const auto parsed = ChatTemplate::parse(source);
  ASSERT_TRUE(parsed.ok()) << source << parsed.status();
  std::map<std::string, bj::object> contexts;  // made once, outside the time
  for (const HostileText& text : texts) {
    contexts.clear();
    const GrowthMeter meter(
        [&](size_t bytes) {
          std::string made = text.text(bytes);
          contexts.try_emplace(made, context_of(made, source));
          return made;
        },
        // Whether it renders or a limit ends it, it must not take long.
        [&](const std::string& made) { static_cast<void>((*parsed)->render(contexts.at(made))); });
    EXPECT_TRUE(meter.is_near_linear()) << source << ", on: " << text.name;
  }
}

// The texts that tell most; all of them for every filter would take minutes.
std::vector<HostileText> some_texts() {
  std::vector<HostileText> some;
  for (const HostileText& text : hostile_texts()) {
    for (const std::string_view name :
         {"one mark", "spaces before a letter", "line breaks", "digits", "one letter", "tabs",
          "percent formats", "brace formats", "random", "words of one letter"}) {
      if (text.name == name) some.push_back(text);
    }
  }
  return some;
}

std::vector<HostileText> few_texts() {
  std::vector<HostileText> few = some_texts();
  std::erase_if(few,
                [](const HostileText& text) { return text.name != "one letter" && text.name != "random"; });
  return few;
}

// By name; a filter that is not here is applied without arguments.
const std::map<std::string_view, std::string>& filter_arguments() {
  static const std::map<std::string_view, std::string> arguments = {
      {"attr", "('upper')"},
      {"batch", "(3, 'x')"},
      {"center", "(999999)"},
      {"default", "('d', true)"},
      {"dictsort", "(false, 'value')"},
      {"format", "(*words)"},
      {"groupby", "('k')"},
      {"indent", "(4, true, true)"},
      {"join", "(', ')"},
      {"map", "('upper')"},
      {"reject", "('eq', 'a')"},
      {"rejectattr", "('k', 'eq', 'a')"},
      {"replace", "('aa', 'b')"},
      {"select", "('string')"},
      {"selectattr", "('k')"},
      {"slice", "(7)"},
      {"sum", "(start='')"},
      {"tojson", "(indent=2, sort_keys=true)"},
      {"trim", "(' a\\n')"},
      {"truncate", "(100000, false, '...', 0)"},
  };
  return arguments;
}

TEST(HostileTexts, EveryFilterOfATemplate) {
  for (const auto* table : {&jinja::text_filters(), &jinja::list_filters(), &jinja::layout_filters()}) {
    for (const auto& [name, function] : *table) {
      const auto given = filter_arguments().find(name);
      const std::string call = std::string(name) + (given == filter_arguments().end() ? "" : given->second);
      for (const char* input : {"x", "words", "rows", "table"}) {
        const bool is_text = input == std::string_view("x");
        expect_linear_template("{{ (" + std::string(input) + "|" + call + ") is defined }}",
                               is_text ? some_texts() : few_texts());
      }
    }
  }
}

TEST(HostileTexts, EveryMethodOfAText) {
  constexpr const char* kCalls[] = {
      "capitalize()",      "casefold()",      "center(99999, 'x')", "count('aa')",
      "count(' ')",        "endswith(x)",     "expandtabs(4)",      "find('aab')",
      "find(x[1:] + 'b')", "format(*words)",  "format_map(table)",  "isalnum()",
      "isalpha()",         "isascii()",       "isdecimal()",        "isdigit()",
      "isidentifier()",    "islower()",       "isprintable()",      "isspace()",
      "istitle()",         "isupper()",       "join(words[:9])",    "ljust(99999)",
      "lower()",           "lstrip()",        "lstrip('a ')",       "partition('aab')",
      "removeprefix(x)",   "removesuffix(x)", "replace('a', 'bc')", "replace('', '-')",
      "rfind('aab')",      "rjust(99999)",    "rpartition('b')",    "rsplit(' ')",
      "rsplit()",          "rstrip()",        "rstrip('a\\n')",     "split()",
      "split('a')",        "split('\\n', 3)", "split('</think>')",  "splitlines(true)",
      "startswith(x)",     "strip()",         "swapcase()",         "title()",
      "upper()",           "zfill(99999)"};
  for (const char* call : kCalls)
    expect_linear_template("{{ x." + std::string(call) + " is defined }}", some_texts());
}

TEST(HostileTexts, OperatorsAndTestsOfATemplate) {
  constexpr const char* kSources[] = {
      "{{ 'aab' in x }}",
      "{{ x[1:] + 'b' in x }}",
      "{{ x ~ x }}{{ x + x }}{{ x * 2 }}",
      "{{ x[::-1] }}{{ x[3:-3] }}{{ x[::2] }}",
      "{{ x == x ~ '' }}{{ x < x ~ 'a' }}",
      "{{ x % () }}",
      "{{ x is upper }}{{ x is lower }}{{ x is filter }}",
      "{% for c in x %}{{ loop.index }}{% endfor %}",
      "{% for w in words %}{{ loop.previtem }}{{ w|trim }}{{ loop.nextitem }}{% endfor %}",
      "{{ ', '.join(words) }}",
      "{{ words }}{{ table }}{{ words|tojson }}{{ table|tojson }}",
      "{{ words + words }}{{ words[1:] }}{{ words|length }}{{ 'nobody' in words }}{{ 'nobody' in table }}",
      "{{ words == words[:] }}{{ words < words[:] }}",
      "{% for r in rows|selectattr('k')|map(attribute='k')|unique %}{{ r }}{% endfor %}",
      "{% for k, v in table|dictsort %}{{ k }}{{ v }}{% endfor %}",
      "{% macro m(a) %}<{{ a }}>{% endmacro %}{% for w in words %}{{ m(w) }}{% endfor %}",
      "{% set n = namespace(c=0) %}{% for w in words %}{% set n.c = n.c + w|length %}{% endfor %}{{ n.c }}",
      "{% filter upper %}{% for w in words %}{{ w }}{% endfor %}{% endfilter %}",
      "{% set captured %}{{ x }}{% endset %}{{ captured|trim }}",
  };
  for (const char* source : kSources) expect_linear_template(source, some_texts());
}

constexpr const char* kChatMl =
    "{%- if tools %}{{ tools|tojson }}{% endif %}"
    "{%- for message in messages %}{% set content = message.content %}"
    "{%- if message.role == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ content|trim }}<|im_end|>\n"
    "{%- if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function.arguments|tojson }}"
    "{% endfor %}{% endif %}{%- endfor %}<|im_start|>assistant\n";

// From the messages of a request to its prompt, with marks where special tokens stay text.
TEST(HostileTexts, ConversationsOfManyShapes) {
  const auto chat = ChatTemplate::parse(kChatMl);
  ASSERT_TRUE(chat.ok()) << chat.status();
  for (const size_t message_bytes : {size_t{16}, size_t{1000}, size_t{1} << 30}) {
    expect_linear(
        "messages of " + std::to_string(message_bytes), hostile_texts(), [&](const std::string& text) {
          GenerateRequest request;
          request.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";
          for (const std::string& piece : pieces_of(text, message_bytes)) {
            ChatMessage& message = request.messages.emplace_back();
            message.role = request.messages.size() % 2 == 0 ? Role::kAssistant : Role::kUser;
            message.content = piece;
            std::string arguments = "{\"a\":", quoted;
            append_json_string(arguments, piece);
            append_json_string(quoted, arguments + "}");
            if (message.role == Role::kAssistant)
              message.extra_json = R"({"tool_calls":[{"function":{"arguments":)" + quoted + "}}]}";
          }
          const auto marked = [](std::string_view content) { return std::optional(std::string(content)); };
          const auto context = chat_context(with_final_tag(request), {}, true, (*chat)->traits(), marked);
          ASSERT_TRUE(context.ok()) << context.status();
          const auto rendered = (*chat)->render(*context);
          if (!rendered.ok()) return;
          static_cast<void>(split_final_message(*rendered, "", final_text(request, false)));
          static_cast<void>(as_generated(*rendered, rendered->substr(0, rendered->size() / 2), text));
          static_cast<void>(as_generated(*rendered, "<" + text, text));
          static_cast<void>(split_final_message(*rendered, rendered->substr(0, rendered->size() / 2), text));
        });
  }
}

// A template's own text, which an operator chose.
TEST(HostileTexts, SourcesOfTemplates) {
  for (const std::string_view around : {"{{ '", "{# ", "", "{% if x %}", "{{ x["}) {
    expect_linear(
        "a source that begins " + std::string(around), hostile_texts(), [&](const std::string& text) {
          static_cast<void>(ChatTemplate::parse(std::string(around) + text, {.source_bytes_max = 16u << 20}));
        });
  }
}

}  // namespace hostile_templates_test
}  // namespace troupe
