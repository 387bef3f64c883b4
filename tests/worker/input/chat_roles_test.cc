// Roles that a template does not know: in whatever order they come, each message's text is in the prompt, or
// the request is refused with the reason. The templates stand for kinds of published ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/worker/input/chat_server.h"

namespace troupe::chat_roles_test {

using chat_server::bytes_with_line_breaks;
using chat_server::ChatServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Any role's name goes into the header.
constexpr const char* kAnyRole = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
// A chain of conditions, without a last branch.
constexpr const char* kThreeRoles =
    "{% for m in messages %}{% if m.role == 'system' %}<S>{{ m.content }}{% elif m.role == 'user' %}<U>{{ "
    "m.content }}"
    "{% elif m.role == 'assistant' %}<A>{{ m.content }}{% endif %}{% endfor %}";
constexpr const char* kTwoRoles =
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<A>{{ m.content }}{% endif %}{% endfor %}";
// The system text is looked for in the first message only.
constexpr const char* kSystemFirst =
    "{% if messages[0].role == 'system' %}<S>{{ messages[0].content | trim }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<T>{{ m.content | tojson }}"
    "{% elif m.role != 'system' %}<{{ m.role[0] | upper }}>{{ m.content | trim }}{% endif %}{% endfor %}";
// No system role, and turns that alternate.
constexpr const char* kGemmaLike =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ 'M' if m.role == 'assistant' else 'U' }}>"
    "{{ m.content | trim }}{% endfor %}";
// The system text goes into the last user turn; results need calls before them.
constexpr const char* kMistralLike =
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% set ns = namespace(index=0) %}"
    "{% for m in rest %}{% if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is undefined) %}"
    "{% if (m.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif "
    "%}"
    "{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
    "{% for m in rest %}{% if m.role == 'user' %}<U>{% if loop.last and system is defined %}{{ system + "
    "'\n\n' }}"
    "{% endif %}{{ m.content }}{% elif m.tool_calls is defined %}<C>{% elif m.role == 'assistant' %}<A>{{ "
    "m.content }}"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have 9 "
    "letters') }}"
    "{% endif %}<T>{{ m.content }}{% else %}{{ raise_exception('only these roles') }}{% endif %}{% endfor %}";
// Instructions are the first message's alone, of either name.
constexpr const char* kKnowsDeveloper =
    "{% if messages[0].role in ['system', 'developer'] %}<D>{{ messages[0].content }}{% set rest = "
    "messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'assistant' %}<A>{{ "
    "m.content }}"
    "{% elif m.role == 'tool' %}<T>{{ m.content }}{% endif %}{% endfor %}";

// Every instruction replaces the one before, and stands at the beginning.
constexpr const char* kLastInstruction =
    "{% set ns = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.text = m.content %}{% endif %}{% endfor %}<S>{{ ns.text }}"
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'assistant' %}<A>"
    "{{ m.content }}{% elif m.role == 'tool' %}<T>{{ m.content }}{% endif %}{% endfor %}";

// S, D, U, A, T (a tool's result), C (an assistant's call, without text).
GenerateRequest chat_of(const std::string& roles) {
  GenerateRequest request;
  for (const char letter : roles) {
    ChatMessage& message = request.messages.emplace_back();
    message.content = "word" + std::to_string(request.messages.size());
    message.role = letter == 'S'   ? Role::kSystem
                   : letter == 'D' ? Role::kDeveloper
                   : letter == 'U' ? Role::kUser
                   : letter == 'T' ? Role::kTool
                                   : Role::kAssistant;
    if (letter == 'T') message.extra_json = R"({"tool_call_id":"call00001"})";
    if (letter != 'C') continue;
    message.content.clear();
    message.extra_json =
        R"({"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  }
  return request;
}

std::string rendered(const ChatServer& server, const std::string& roles) {
  const GenerateRequest request = chat_of(roles);
  const auto ids = encode_chat(server.model, request, encoding_of(request));
  return ids.ok() ? server.tokenizer->decode(ids.value(), /*skip_special=*/false)
                  : "400: " + ids.error().message;
}

std::vector<std::string> orders(size_t count_max) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0, count = 0; count < count_max; ++count) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const char letter : std::string("SDUATC")) all.push_back(all[begin] + letter);
    }
  }
  all.erase(all.begin());
  return all;
}

TEST(ChatRoles, NoTextIsLostInAnyOrder) {
  for (const char* source : {kAnyRole, kThreeRoles, kTwoRoles, kSystemFirst, kGemmaLike, kMistralLike,
                             kKnowsDeveloper, kLastInstruction}) {
    const ChatServer server(bytes_with_line_breaks(), source);
    const bool refuses_orders = source == kGemmaLike || source == kMistralLike;
    int refused = 0;
    for (const std::string& order : orders(4)) {
      const std::string text = rendered(server, order);
      if (text.starts_with("400: ")) {
        ++refused;
        EXPECT_THAT(text, HasSubstr("roles that it got: ")) << source << order;
        continue;
      }
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i] == 'C') continue;
        EXPECT_THAT(text, HasSubstr("word" + std::to_string(i + 1))) << source << order;
      }
    }
    EXPECT_TRUE(refused == 0 || refuses_orders) << source << refused;
  }
}

TEST(ChatRoles, BecomeThoseThatTheTemplateKnows) {
  struct Case {
    const char* source;
    std::string roles, text;
  };
  const Case cases[] = {
      {kAnyRole, "SDUAT", "<system>word1<system>word2<user>word3<assistant>word4<tool>word5"},
      {kThreeRoles, "DUAUS", "<S>word1<U>word2<A>word3<U>word4<S>word5"},
      {kThreeRoles, "UCTA", "<U>word1<A><U>word3<A>word4"},
      {kThreeRoles, "UCTTU", "<U>word1<A><U>word3\n\nword4\n\nword5"},
      {kTwoRoles, "SUAU", "<U>word1\n\nword2<A>word3<U>word4"},
      {kTwoRoles, "SAU", "<U>word1<A>word2<U>word3"},
      {kTwoRoles, "UU", "<U>word1<U>word2"},
      {kSystemFirst, "SSDUA", "<S>word1\n\nword2\n\nword3<U>word4<A>word5"},
      {kSystemFirst, "SUASU", "<S>word1<U>word2<A>word3<U>word4\n\nword5"},
      {kSystemFirst, "SUAUS", "<S>word1<U>word2<A>word3<U>word4\n\nword5"},
      {kSystemFirst, "UCT", "<U>word1<A><T>\"word3\""},
      {kGemmaLike, "SUAU", "<U>word1\n\nword2<M>word3<U>word4"},
      {kGemmaLike, "SAU", "<U>word1<M>word2<U>word3"},
      {kGemmaLike, "UCTA", "<U>word1<M><U>word3<M>word4"},
      {kGemmaLike, "UCTTU", "<U>word1<M><U>word3\n\nword4\n\nword5"},
      {kMistralLike, "SUAU", "<U>word2<A>word3<U>word1\n\nword4"},
      {kMistralLike, "SSUAUS", "<U>word3<A>word4<U>word1\n\nword2\n\nword5\n\nword6"},
      {kMistralLike, "UCTAU", "<U>word1<C><T>word3<A>word4<U>word5"},
      {kMistralLike, "SUA", "<U>word1\n\nword2<A>word3"},
      {kMistralLike, "SUAUA", "<U>word2<A>word3<U>word1\n\nword4<A>word5"},
      {kMistralLike, "SDUCT", "<U>word1\n\nword2\n\nword3<C><T>word5"},
      {kMistralLike, "SUAUCTA", "<U>word2<A>word3<U>word1\n\nword4<C><T>word6<A>word7"},
      {kLastInstruction, "SSU", "<S>word1\n\nword2<U>word3"},
      {kLastInstruction, "DSUA", "<S>word1\n\nword2<U>word3<A>word4"},
      {kLastInstruction, "SUASU", "<S>word1<U>word2<A>word3<U>word4\n\nword5"},
      {kLastInstruction, "SUAUSA", "<S>word1<U>word2<A>word3<U>word4\n\nword5<A>word6"},
      {kLastInstruction, "UASU", "<S><U>word1<A>word2<U>word3\n\nword4"},
      {kKnowsDeveloper, "DUAU", "<D>word1<U>word2<A>word3<U>word4"},
      {kKnowsDeveloper, "SDUAD", "<D>word1\n\nword2<U>word3<A>word4<U>word5"},
  };
  for (const Case& each : cases) {
    const ChatServer server(bytes_with_line_breaks(), each.source);
    EXPECT_EQ(rendered(server, each.roles), each.text) << each.source << " " << each.roles;
  }
}

// Published templates of the kinds above, where TROUPE_DATA has them.
TEST(ChatRoles, PublishedTemplatesShowInstructionsInUsualOrders) {
  const char* data = std::getenv("TROUPE_DATA");
  const std::string folder = std::string(data == nullptr ? "" : data) + "/chat_templates/templates/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no published templates at " << folder;
  const auto server_of = [&folder](const std::string& name) {
    std::stringstream source;
    source << std::ifstream(folder + name + ".jinja").rdbuf();
    auto server = std::make_unique<ChatServer>(bytes_with_line_breaks(), source.str());
    server->model.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    server->mark();
    return server;
  };
  const auto distilled = server_of("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B");
  for (const std::string roles : {"SUASU", "SSU", "DSU", "UASU", "SUASUA"}) {
    const std::string text = rendered(*distilled, roles);
    for (size_t i = 1; i <= roles.size(); ++i)
      EXPECT_THAT(text, HasSubstr("word" + std::to_string(i))) << roles;
  }
  const auto nemo = server_of("mistralai-Mistral-Nemo-Instruct-2407");
  EXPECT_EQ(rendered(*nemo, "SUAU"), "<s>[INST]word2[/INST]word3</s>[INST]word1\n\nword4[/INST]");
  EXPECT_EQ(rendered(*nemo, "SUAUA"), "<s>[INST]word2[/INST]word3</s>[INST]word1\n\nword4[/INST]word5</s>");
  EXPECT_THAT(rendered(*nemo, "SUCT"), StartsWith("<s>[INST]word1\n\nword2[/INST][TOOL_CALLS]["));
  EXPECT_THAT(rendered(*server_of("deepseek-ai-DeepSeek-V3.1"), "SUCT"),
              AllOf(HasSubstr("f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"), HasSubstr("word4")));
}

TEST(ChatRoles, ARefusalNamesTheRoles) {
  const ChatServer server(bytes_with_line_breaks(), kGemmaLike);
  EXPECT_THAT(rendered(server, "UUA"), HasSubstr("roles must alternate"));
  EXPECT_THAT(rendered(server, "UUA"), HasSubstr("(roles that it got: user, user, assistant)"));
}

// Nothing foresees what a template leaves out where; texts that are written otherwise are not left out.
TEST(ChatRoles, ATextThatIsLeftOutIsRefused) {
  const ChatServer server(
      bytes_with_line_breaks(),
      "{% for m in messages %}{% if loop.index0 != 5 %}<{{ m.role }}>{{ m.content | tojson }}"
      "{% endif %}{% endfor %}");
  EXPECT_EQ(rendered(server, "SU"), "<system>\"word1\"<user>\"word2\"");
  EXPECT_THAT(rendered(server, "SUAUAS"), HasSubstr("'messages[5]' has role 'system'"));
  EXPECT_THAT(rendered(server, "UAUUCT"), HasSubstr("'messages[5]' has role 'tool'"));
  EXPECT_THAT(rendered(server, "SUAUAU"), Not(HasSubstr("400")))
      << "which turns of the talk it shows is the template's own affair";
  const ChatServer shouts(bytes_with_line_breaks(),
                          "{% for m in messages %}{{ m.content | upper }}{% endfor %}");
  EXPECT_EQ(rendered(shouts, "SU"), "WORD1WORD2");
}

// Role `function` is the older name of `tool`, at the gateway and here.
TEST(ChatRoles, FunctionIsTool) {
  const auto parsed = parse_chat_request(
      R"({"messages":[{"role":"user","content":"a"},{"role":"function","name":"f","content":"b"}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().messages[1].role, Role::kTool);
  EXPECT_EQ(role_name(Role::kTool), "tool");
}

TEST(ChatRoles, PartsStayTextOfTheirTurn) {
  const ChatServer server(
      bytes_with_line_breaks(),
      "{% for m in messages %}{% if m.role == 'user' %}<U>{% for p in m.content %}[{{ p.text }}]"
      "{% endfor %}{% endif %}{% endfor %}");
  EXPECT_EQ(rendered(server, "SU"), "<U>[word1\n\nword2]");
}

}  // namespace troupe::chat_roles_test
