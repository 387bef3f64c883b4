#include "worker/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "common/json/json.h"
#include "tests/cpu_time.h"
#include "worker/text/chat_context.h"
#include "worker/text/subcommands.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe {
namespace chat_template_test {

using ::testing::HasSubstr;

// Renders a template with a context; returns "error: …" on failure.
std::string rendered(std::string_view source, std::string_view context = "{}") {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "error: " + std::string(parsed.status().message());
  auto text = (*parsed)->render(parse_json(context)->get_object());
  return text.ok() ? *text : "error: " + std::string(text.status().message());
}

bj::object read_object(const std::filesystem::path& path) {
  auto value = read_json_file(path.string());
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return value->get_object();
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ChatTemplate, WritesTheDemoModelsChatMl) {
  auto chat = ChatTemplate::load(TROUPE_SOURCE_DIR "/configs/demo-model");
  ASSERT_TRUE(chat.ok()) << chat.status();
  GenerateRequest request;
  request.messages = {{Role::kSystem, "Du bist Newton.", ""}, {Role::kUser, " Hallo\n", ""}};
  auto config = TokenizerConfig::read(TROUPE_SOURCE_DIR "/configs/demo-model", {});
  ASSERT_TRUE(config.ok()) << config.status();
  const bj::object special = config->variables();
  EXPECT_EQ(special.at("eos_token").get_string(), "<|im_end|>");
  EXPECT_FALSE(special.contains("bos_token"));
  EXPECT_EQ(*(*chat)->render(*chat_context(request, special)),
            "<|im_start|>system\nDu bist Newton.<|im_end|>\n<|im_start|>user\n "
            "Hallo\n<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ChatMlOfLeadingMessagesIsAPrefixOfTheWhole) {
  auto chat = ChatTemplate::load(TROUPE_SOURCE_DIR "/configs/demo-model");
  ASSERT_TRUE(chat.ok());
  std::mt19937_64 rng(23);
  const std::string kPieces[] = {"a", "\n", " ", "宋江", "<|im_end|>", "{{ x }}", "👩", "\"", ""};
  for (int round = 0; round < 200; ++round) {
    bj::array messages;
    std::string before;
    for (size_t n = 0; n < 1 + rng() % 8; ++n) {
      std::string content;
      for (size_t i = 0; i < rng() % 6; ++i) content += kPieces[rng() % std::size(kPieces)];
      messages.push_back(bj::object{{"role", n % 2 == 0 ? "user" : "assistant"}, {"content", content}});
      bj::object context{{"messages", messages}, {"add_generation_prompt", false}};
      std::string text = *(*chat)->render(context);
      ASSERT_TRUE(text.starts_with(before));
      ASSERT_GT(text.size(), before.size());
      before = text;
      context["add_generation_prompt"] = true;
      EXPECT_TRUE((*chat)->render(context)->starts_with(text));
    }
  }
}

TEST(ChatTemplate, PassesToolsAndExtraFieldsToTheTemplate) {
  GenerateRequest request;
  request.messages = {{Role::kAssistant, "", R"({"tool_calls": [{"id": "7"}], "name": "n"})"}};
  request.tools_json = R"([{"type": "function"}])";
  request.chat_template_kwargs_json = R"({"enable_thinking": false, "add_generation_prompt": 3})";
  auto context = chat_context(request, {{"bos_token", "<s>"}});
  ASSERT_TRUE(context.ok()) << context.status();
  auto chat = ChatTemplate::parse(
      "{{ bos_token }}{{ tools[0].type }}{{ messages[0].tool_calls[0].id }}{{ messages[0].role }}"
      "{{ enable_thinking }}{{ add_generation_prompt }}");
  EXPECT_EQ(*(*chat)->render(*context), "<s>function7assistantFalseTrue");
}

// As vLLM: the request's own win over those of chat_template_kwargs.
TEST(ChatTemplate, PassesDocumentsToTheTemplate) {
  const auto chat = ChatTemplate::parse(
      "{% for d in documents or [] %}{{ d.title }}: {{ d.text }};{% endfor %}"
      "{{ documents is none }}");
  const auto shown = [&](const std::string& own, const std::string& kwargs) {
    GenerateRequest request;
    request.messages = {{Role::kUser, "hi", ""}};
    request.documents_json = own;
    request.chat_template_kwargs_json = kwargs;
    const auto context = chat_context(request, {});
    return context.ok() ? *(*chat)->render(*context) : std::string(context.status().message());
  };
  const std::string own = R"([{"title":"a","text":"b"}])",
                    kwargs = R"({"documents":[{"title":"c","text":"d"}]})";
  EXPECT_EQ(shown("", ""), "True");
  EXPECT_EQ(shown(own, ""), "a: b;False");
  EXPECT_EQ(shown("", kwargs), "c: d;False");
  EXPECT_EQ(shown(own, kwargs), "a: b;False");
  EXPECT_EQ(shown("[]", kwargs), "False");
}

// Python's integers have any size, and its json prints them as they came.
TEST(ChatTemplate, PrintsIntegersOfAnySizeAsTheyCame) {
  const std::string wide = "123456789012345678901234567890", negative = "-9223372036854775809",
                    unsigned_most = "18446744073709551615";
  GenerateRequest request;
  request.tools_json =
      "[" + wide + ", " + negative + ", " + unsigned_most + ", 9223372036854775807, 1.0, 1e5]";
  request.messages = {{Role::kAssistant, "",
                       R"({"tool_calls": [{"type": "function", "function": {"name": "f", "arguments":
                          "{\"n\": )" +
                           wide + R"(}"}}]})"}};
  const auto shown = [&](const std::string& source) {
    const auto chat = ChatTemplate::parse(source);
    const auto context = chat_context(request, {});
    return context.ok() ? *(*chat)->render(*context) : std::string(context.status().message());
  };
  EXPECT_EQ(shown("{{ tools | tojson }}"),
            "[" + wide + ", " + negative + ", " + unsigned_most + ", 9223372036854775807, 1.0, 100000.0]");
  EXPECT_EQ(shown("{{ messages[0].tool_calls[0].function.arguments | tojson }}"), "{\"n\": " + wide + "}");
  EXPECT_EQ(shown("{{ tools[0] }} {{ tools[0] is number }} {{ tools[0] == tools[0] }} {{ tools[:2] }}"),
            wide + " True True [" + wide + ", " + negative + "]");
}

TEST(ChatTemplate, LoadsTemplateFromEitherFile) {
  std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "troupe_chat_template_test";
  std::filesystem::create_directories(dir);
  std::filesystem::remove(dir / "chat_template.jinja");
  EXPECT_EQ(ChatTemplate::load((dir / "none").string()).status().code(), absl::StatusCode::kNotFound);
  auto write = [&](const char* name, const char* text) { std::ofstream(dir / name) << text; };
  auto load = [&] { return *(*ChatTemplate::load(dir.string()))->render({}); };
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>"}})");
  EXPECT_EQ(ChatTemplate::load(dir.string()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TokenizerConfig::read(dir.string(), {})->named_text("bos_token"), "<b>");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(load(), "D");
  write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_THAT(std::string(ChatTemplate::load(dir.string()).status().message()),
              HasSubstr("chat_template: line 1: expected"));
  write("chat_template.jinja", "J");
  EXPECT_EQ(load(), "J");
  std::filesystem::remove_all(dir);
}

TEST(ChatTemplate, RendersOurGoldens) {
  std::filesystem::path dir = TROUPE_SOURCE_DIR "/tests/fixtures/templates";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jinja") continue;
    auto parsed = ChatTemplate::parse(read_text(entry.path()));
    ASSERT_TRUE(parsed.ok()) << entry.path() << parsed.status();
    bj::object golden = read_object(std::filesystem::path(entry.path()).replace_extension(".json"));
    for (const bj::value& value : golden.at("cases").get_array()) {
      auto text = (*parsed)->render(value.at("context").get_object());
      const bj::value* expected = value.get_object().if_contains("text");
      EXPECT_EQ(text.ok(), expected != nullptr) << entry.path() << value << text.status();
      if (text.ok() && expected != nullptr) {
        EXPECT_EQ(*text, std::string(expected->get_string())) << entry.path();
      }
      ++count;
    }
  }
  EXPECT_GE(count, 20);
}

TEST(ChatTemplate, RendersPublishedTemplatesByteForByte) {
  const char* data = std::getenv("TROUPE_DATA");
  std::filesystem::path dir =
      std::filesystem::path(data != nullptr ? data : TROUPE_SOURCE_DIR "/../shared/data") / "chat_templates";
  if (!std::filesystem::is_directory(dir))
    GTEST_SKIP() << "no published templates at " << dir << " (set TROUPE_DATA)";
  bj::object shared = read_object(dir / "contexts.json");
  int right = 0, total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "goldens")) {
    auto parsed = ChatTemplate::parse(read_text(dir / "templates" / entry.path().stem().concat(".jinja")));
    EXPECT_TRUE(parsed.ok()) << entry.path() << parsed.status();
    bj::object goldens = read_object(entry.path());
    for (const bj::value& golden : goldens.at("goldens").get_array()) {
      bj::object context = shared.at("contexts").at(golden.at("context").get_string()).get_object();
      context["bos_token"] = shared.at("bos_token");
      context["eos_token"] = shared.at("eos_token");
      context["now"] = shared.at("strftime_now");
      context["add_generation_prompt"] = golden.at("add_generation_prompt");
      ++total;
      if (!parsed.ok()) continue;
      auto text = (*parsed)->render(context);
      const bj::value* expected = golden.get_object().if_contains("rendered");
      bool equal = text.ok() ? expected != nullptr && *text == std::string(expected->get_string())
                             : expected == nullptr;
      right += equal;
      EXPECT_TRUE(equal) << entry.path() << " " << golden.at("context");
    }
  }
  EXPECT_EQ(right, total);
  EXPECT_EQ(total, 19 * 13 * 2);
  std::cout << "published templates rendered byte for byte: " << right << " of " << total << "\n";
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(rendered("a\n{% for x in %}"), "error: line 2: expected an expression, found '%}'");
  EXPECT_EQ(rendered("\n\n{{ x.y }}"), "error: line 3: 'x' is undefined");
  EXPECT_EQ(rendered("{% if a %}"), "error: line 1: expected '{% endif %}', found end of template");
  EXPECT_EQ(rendered("{{ raise_exception('no ' ~ 1) }}"), "error: line 1: no 1");
  EXPECT_EQ(rendered("{{ raise_exception('x' ~ 'é' * 5000) }}").size(),
            std::string("error: line 1: ").size() + 999)
      << "its beginning, in whole characters";
  EXPECT_THAT(rendered("{% include 'x' %}"), HasSubstr("unknown or misplaced statement 'include'"));
  EXPECT_THAT(rendered("{{ 1 | no_such }}"), HasSubstr("no filter is named 'no_such'"));
  EXPECT_EQ(rendered("{{ [1].append(2) }}"),
            "error: line 1: templates must not change a list; make a new one, as in a + [b]");
}

TEST(ChatTemplate, StopsRunawayTemplates) {
  const char* runaways[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
      "{% set n = namespace(s=[1]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}",
      "{{ 'x' * 99999999999 }}",
      "{{ [1] * 99999999999 }}",
      "{{ range(999999) }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
      "{{ 'aaaaaaaaaa' | replace('', 'x' * 9999999) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 2 ** 9999 }}",
      "{{ 'x' | indent(99999999999) ~ ('x\\n' * 99999) | indent(99999999) }}",
  };
  for (const char* source : runaways) EXPECT_THAT(rendered(source), HasSubstr("error: line 1: ")) << source;
}

// Operations that read text or lists, `s` being a million characters: none of them is free.
constexpr const char* kReadersOfText[] = {
    "x | attr(s)",
    "s in d",
    "d.get(s)",
    "d[s]",
    "[x] | map(attribute=s) | list",
    "[x] | selectattr(s) | list",
    "[x] | groupby(s)",
    "[d, d] | sort(attribute=s)",
    "s[a:a + 1]",
    "s[999999]",
    "s is lower",
    "s is upper",
    "s is filter",
    "s.isupper()",
    "s.isalpha()",
    "s.istitle()",
    "s.endswith(t)",
    "s.startswith((s ~ 'b', t))",
    "s.count('b')",
    "s.split()",
    "s | length",
    "s | wordcount",
    "s | trim('a')",
    "('a' ~ x) | trim(s)",
    "'%.1s' % s",
    "'{0:.1}'.format(s)",
    "'%(k)s'.format_map(e) if e else 0",
    "'x'.format(**d)",
    "{s: 1} == {s: 1}",
    "s == t",
    "s < t",
    "[s] == [t]",
    "loop.changed(s, t)",
    "(s, t) in d",
    "d | dictsort",
    "[s, t] | unique | list",
    "[s, t] | min",
    "'x'.startswith(('b',) * 20000)",
    "dict(e)",
    "m(**e)",
    "r | list == q",
    "q in [r]",
    "range(20000) | sum",
};

TEST(ChatTemplate, ChargesEveryOperationThatReadsText) {
  ChatTemplate::Limits limits;
  limits.steps_max = 400'000;  // several times what the loop takes if its operation is free
  for (const char* reader : kReadersOfText) {
    std::string source =
        "{% set s = 'a' * 1000000 %}{% set t = 'a' * 1000000 %}{% set x = 'xy' %}{% set d = {s: 1, t ~ x: 2} "
        "%}"
        "{% set r = (range(20000) | map('string') | list) %}{% set q = r[:19999] + ['-'] %}{% set r = (r + "
        "[]) %}"
        "{% set e = dict(r | batch(2)) %}{% macro m() %}{{ kwargs }}{% endmacro %}"
        "{% for a in range(30000) %}{% set y = " +
        std::string(reader) + " %}{% endfor %}";
    const double before = cpu_seconds();
    auto parsed = ChatTemplate::parse(source, limits);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(std::string((*parsed)->render({}).status().message()), HasSubstr("line 1: more than "))
        << reader;
    EXPECT_LT(cpu_seconds() - before, 10) << reader;
  }
}

// Copies kept inside a filter count as text made, too: memory is bounded however many steps remain.
TEST(ChatTemplate, LimitsTextThatIsKept) {
  ChatTemplate::Limits limits;
  limits.steps_max = int64_t{1} << 40;
  limits.output_bytes_max = 1u << 20;
  for (const char* keeper :
       {"l | sort", "l | unique", "([{'k': s}] * 50) | groupby('k')", "l | max", "{s: 1} | dictsort",
        "dict([[s ~ a, 1]])", "s.split('a')", "s.split()", "(s ~ a) | upper"}) {
    auto parsed = ChatTemplate::parse(
        "{% set s = 'a ' * 100000 %}{% set l = [s] * 50 %}{% for a in range(100) %}{% set y = " +
            std::string(keeper) + " %}{% endfor %}",
        limits);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_THAT(std::string((*parsed)->render({}).status().message()),
                HasSubstr("more than 8388608 bytes of text in all"))
        << keeper;
  }
}

TEST(ChatTemplate, MessagesClipLongNames) {
  for (const char* use :
       {"{{ [][s].x }}", "{{ {}[s].x }}", "{{ [] | attr(s) + 1 }}", "{{ [1] | map(s) | list }}"}) {
    const std::string message = rendered("{% set s = 'ä' * 100000 %}" + std::string(use));
    EXPECT_THAT(message, HasSubstr("error: line 1: ")) << use;
    EXPECT_THAT(message, HasSubstr("ää")) << use;
    EXPECT_LT(message.size(), 500u) << use;
  }
}

TEST(ChatTemplate, RefusesDeepNestingBeforeTheStackOverflows) {
  auto repeat = [](std::string_view text, size_t count) {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& source : {
           "{{ " + repeat("(", 50000),
           "{{ " + repeat("[", 50000),
           "{{ " + repeat("{1:", 50000),
           "{{ " + repeat("-", 50000) + "1 }}",
           "{{ " + repeat("not ", 50000) + "1 }}",
           "{{ 1" + repeat("+1", 50000) + " }}",
           "{{ 1" + repeat("|abs", 50000) + " }}",
           "{{ x" + repeat(".a", 50000) + " }}",
           "{{ x" + repeat("()", 50000) + " }}",
           "{{ 1" + repeat(" if 1 else 1", 20000) + " }}",
           repeat("{% if 1 %}", 20000),
           repeat("{% for x in y %}", 10000),
           "{% for " + repeat("(", 50000),
       }) {
    EXPECT_THAT(rendered(source), HasSubstr("error: line 1: ")) << source.substr(0, 40);
  }
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  auto parsed = ChatTemplate::parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in range(50) %}{{ m(i ~ k) }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::string key(1, static_cast<char>('a' + t));
      std::string expected;
      for (int i = 0; i < 50; ++i) expected += "<" + std::to_string(i) + key + ">";
      for (int round = 0; round < 50; ++round) right += *(*parsed)->render({{"k", key}}) == expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

TEST(RenderCommand, AnswersEachLineWithALine) {
  std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "troupe_render.jinja";
  std::ofstream(path) << "{{ a.b }}{{ strftime_now('%d %b %Y') }}\n";
  std::istringstream in(
      "{\"a\": {\"b\": \"\\n\\\"é\"}, \"now\": \"2024-12-11 20:00:00\"}\n{}\nnot json\n[]\n");
  std::ostringstream out, err;
  EXPECT_EQ(render_command({"--template", path.string()}, in, out, err), 0) << err.str();
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"text\": \"\\n\\\"é11 Dec 2024\"}");
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"error\": \"line 1: 'a' is undefined\"}");
  std::getline(lines, line);
  EXPECT_THAT(line, HasSubstr("{\"error\": "));
  std::getline(lines, line);
  EXPECT_EQ(line, "{\"error\": \"expected a JSON object\"}");
  std::ofstream(path) << "{% nonsense %}";
  in = std::istringstream("{}\n{}\n");
  out.str("");
  EXPECT_EQ(render_command({"--template", path.string()}, in, out, err), 0) << err.str();
  lines = std::istringstream(out.str());
  for (int i = 0; i < 2; ++i) {
    std::getline(lines, line);
    EXPECT_THAT(line, HasSubstr("{\"error\": \"line 1: unknown or misplaced statement 'nonsense'"));
  }
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_EQ(render_command({}, in, out, err), 2);
  std::filesystem::remove(path);
}

}  // namespace chat_template_test
}  // namespace troupe
