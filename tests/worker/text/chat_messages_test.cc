#include "worker/text/chat_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/text/chat_context.h"
#include "worker/text/chat_template.h"

namespace troupe {
namespace chat_messages_test {

using ::testing::HasSubstr;

std::string rendered(std::string_view source, const std::vector<ChatMessage>& messages,
                     const std::string& kwargs = "", const bj::object& special_tokens = {}) {
  auto chat = ChatTemplate::parse(source);
  EXPECT_TRUE(chat.ok()) << chat.status();
  (*chat)->probe();
  GenerateRequest request;
  request.messages = messages;
  request.chat_template_kwargs_json = kwargs;
  const auto context =
      chat_context(request, special_tokens, /*add_generation_prompt=*/false, (*chat)->traits());
  if (!context.ok()) return "error: " + std::string(context.status().message());
  const auto text = (*chat)->render(*context);
  return text.ok() ? *text : "error: " + std::string(text.status().message());
}

const ChatMessage kPersona{Role::kDeveloper, "You are Newton.", ""};

TEST(TemplateMessages, DeveloperIsSystemWhereTheTemplateDoesNotKnowIt) {
  EXPECT_EQ(rendered("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", {kPersona}),
            "<system>You are Newton.");
  EXPECT_EQ(
      rendered(
          "{% for m in messages %}{% if m.role == \"system\" %}[S]{{ m.content }}{% endif %}{% endfor %}",
          {kPersona}),
      "[S]You are Newton.");
  EXPECT_EQ(rendered("{% for m in messages %}{{ 'D' if m.role == 'developer' else m.role }}{% endfor %}",
                     {kPersona}),
            "D");
}

std::vector<ChatMessage> with_calls(const std::string& calls) {
  return {{Role::kAssistant, "Well met.", R"({"tool_calls":)" + calls + "}"}};
}
std::vector<ChatMessage> with_arguments(const std::string& arguments) {
  return with_calls(R"([{"id":"c1","type":"function","function":{"name":"dice","arguments":)" + arguments +
                    "}}]");
}
constexpr std::string_view kArguments =
    "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% "
    "endfor %}";

TEST(TemplateMessages, ArgumentsOfACallAreAMapping) {
  EXPECT_EQ(rendered(kArguments, with_arguments(R"("{\"sides\": 6}")")), R"({"sides": 6})");
  EXPECT_EQ(rendered(kArguments, with_arguments(R"("")")), "{}");
  EXPECT_EQ(rendered(kArguments, with_arguments(R"(" \n")")), "{}");
  EXPECT_EQ(rendered(kArguments, with_arguments(R"({"sides": 6})")), R"({"sides": 6})");
  EXPECT_EQ(rendered(kArguments, with_arguments(R"("[1, \"é\"]")")), R"([1, "é"])");
  EXPECT_EQ(
      rendered(
          "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments | items %}"
          "{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}",
          with_arguments(R"("{\"sides\": 6, \"times\": 2}")")),
      "sides=6;times=2;");
  EXPECT_THAT(rendered(kArguments, with_arguments(R"("{sides}")")),
              HasSubstr("messages[0].tool_calls[0].function.arguments: must be JSON"));
}

TEST(TemplateMessages, ArgumentsAreTextWhereTheTemplateTakesNoMapping) {
  const std::string adds =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '(' + c.function.arguments + ')' "
      "}}{% endfor %}{% endfor %}";
  const auto written = [&adds](const std::string& arguments) {
    return rendered(adds, with_arguments(arguments));
  };
  EXPECT_EQ(written(R"("{\"sides\":  6}")"), "Well met.({\"sides\":  6})");
  EXPECT_EQ(written(R"("")"), "Well met.({})");
  EXPECT_EQ(written(R"({"sides": [6, 123456789012345678901234567890, "é"]})"),
            "Well met.({\"sides\":[6,123456789012345678901234567890,\"é\"]})");
  EXPECT_EQ(rendered(adds, with_calls(R"([{"function":{"name":"f"}},{"function":{"arguments":"{}"}}])"))
                .substr(0, 6),
            "error:");
}

// A template may open a turn that is gone on with in another way.
TEST(TemplateMessages, PrefixIsAFieldWhereItIsTrue) {
  ChatMessage words{Role::kAssistant, "Well", ""};
  const std::string asks =
      "{% for m in messages %}{{ m.content }}{{ m.prefix is defined and m.prefix }}{% endfor %}";
  EXPECT_EQ(rendered(asks, {words}), "WellFalse");
  words.prefix = true;
  EXPECT_EQ(rendered(asks, {{Role::kUser, "Who?", ""}, words}), "Who?FalseWellTrue");
}

TEST(TemplateMessages, CallsOfAnotherShapeStayAsTheyAre) {
  EXPECT_EQ(
      rendered("{{ messages[0].tool_calls | tojson }}", with_calls(R"([5,{"id":"7"},{"function":"f"}])")),
      R"([5, {"id": "7"}, {"function": "f"}])");
}

TEST(TemplateMessages, EmptyListOfCallsIsNone) {
  const char* asks =
      "{% for m in messages %}{% if m.tool_calls is defined %}[CALLS]{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}";
  EXPECT_EQ(rendered(asks, with_calls("[]")), "Well met.");
  EXPECT_EQ(rendered(asks, with_arguments(R"("")")), "[CALLS]");
}

TEST(TemplateMessages, SeveralPartsStaySeveralWhereTheTemplateGoesThroughThem) {
  const char* kParts =
      "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}";
  const auto parsed = parse_chat_request(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a\n"},{"type":"text","text":""},)"
      R"({"type":"text","text":"b"}]},{"role":"user","content":[{"type":"text","text":"c\nd"}]}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(rendered(kParts, parsed.value().messages), "[a\n][][b][c\nd]");
  EXPECT_EQ(rendered("{% for m in messages %}{{ m.content }}|{% endfor %}", parsed.value().messages),
            "a\n\n\nb|c\nd|");
}

TEST(TemplateMessages, ContentComesInPartsWhereTheTemplateGoesThroughThem) {
  const std::vector<ChatMessage> who{{Role::kUser, "Who?", ""}};
  EXPECT_EQ(
      rendered("{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
               "{% endif %}{% endfor %}{% endfor %}",
               who),
      "Who?");
  EXPECT_EQ(
      rendered("{% for m in messages %}{% for part in m['content'] %}{{ part['text'] | trim }}{% endfor %}"
               "{% endfor %}",
               who),
      "Who?");
  EXPECT_EQ(rendered("{% for m in messages %}{% if m.content is string %}S:{{ m.content }}{% else %}"
                     "{% for part in m.content %}P:{{ part.text }}{% endfor %}{% endif %}{% endfor %}",
                     who),
            "S:Who?")
      << "a template that takes both gets text";
  EXPECT_EQ(rendered("{{ messages[0].content }}", who), "Who?");
}

TEST(TemplateMessages, KwargsReplaceNothingOfTheRequestTheModelOrTheTemplates) {
  constexpr std::string_view kShows =
      "{{ bos_token }}{{ add_generation_prompt }}{{ continue_final_message is defined }}{{ enable_thinking "
      "}}";
  const struct {
    const char *name, *value, *shown;
  } cases[] = {
      {"enable_thinking", "false", "<s>FalseFalseFalse"},
      {"documents", "[{}]", "<s>FalseFalse"},
      {"add_generation_prompt", "true", "<s>FalseFalse"},
      {"add_generation_prompt", "[7]", "<s>FalseFalse"},
      {"continue_final_message", "true", "<s>FalseFalse"},
      {"messages", "[]", ": is the conversation's own"},
      {"tools", "[]", ": is the conversation's own"},
      {"bos_token", "\"\"", ": is the model's own"},
      {"eos_token", "null", ": is the model's own"},
      {"pad_token", "\"x\"", ": is the model's own"},
      {"image_token", "\"x\"", ": is the model's own"},
      {"additional_special_tokens", "[]", ": is the model's own"},
      {"raise_exception", "\"\"", ": is a function of every template"},
      {"strftime_now", "1", ": is a function of every template"},
      {"namespace", "{}", ": is a function of every template"},
      {"range", "[]", ": is a function of every template"},
      {"dict", "{}", ": is a function of every template"},
  };
  for (const auto& [name, value, shown] : cases) {
    const std::string kwargs = std::string("{\"") + name + "\": " + value + "}";
    const std::string text =
        rendered(kShows, {kPersona}, kwargs, {{"bos_token", "<s>"}, {"image_token", "<i>"}});
    const std::string error = std::string("error: chat_template_kwargs.") + name + shown;
    EXPECT_TRUE(shown[0] == ':' ? text.starts_with(error) : text == shown) << kwargs << " gives " << text;
  }
}

TEST(TemplateMessages, ThoughtsAreThereUnderTheNameThatTemplatesRead) {
  const char* const source = "{% for m in messages %}{{ m.content }}[{{ m.reasoning_content }}]{% endfor %}";
  const auto with = [](const std::string& extra) {
    return std::vector<ChatMessage>{{Role::kAssistant, "a", extra}};
  };
  EXPECT_EQ(rendered(source, with(R"({"reasoning":"hm"})")), "a[hm]");
  EXPECT_EQ(rendered(source, with(R"({"reasoning":"hm","reasoning_content":"so"})")), "a[so]");
  EXPECT_EQ(rendered(source, with(R"({"reasoning":{"x":1}})")), "a[]");
}

TEST(TemplateMessages, EffortIsAVariableUnlessTheArgumentsSayOtherwise) {
  const auto chat = ChatTemplate::parse("{{ reasoning_effort }}{{ enable_thinking }}").value();
  const auto text = [&](const std::string& effort, const std::string& kwargs) {
    GenerateRequest request;
    request.messages = {{Role::kUser, "a", ""}};
    request.reasoning_effort = effort;
    request.chat_template_kwargs_json = kwargs;
    return chat->render(chat_context(request, {}).value()).value();
  };
  EXPECT_EQ(text("", ""), "");
  EXPECT_EQ(text("low", ""), "low");
  EXPECT_EQ(text("none", ""), "noneFalse");
  EXPECT_EQ(text("none", R"({"enable_thinking":true})"), "noneTrue");
  EXPECT_EQ(text("low", R"({"reasoning_effort":"high"})"), "high");
}

}  // namespace chat_messages_test
}  // namespace troupe
