#include "worker/text/final_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/text/chat_context.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/cut_text.h"

namespace troupe::final_words_test {

using ::testing::HasSubstr;

// "before|words" of a chat that goes on with `last`.
std::string gone_on_with(std::string_view source, const std::string& last) {
  auto chat = ChatTemplate::parse(source);
  EXPECT_TRUE(chat.ok()) << chat.status();
  (*chat)->probe();
  GenerateRequest request;
  request.messages = {{Role::kUser, "The end?", ""}};
  const auto opened = (*chat)->render(chat_context(request, {}, true, (*chat)->traits()).value());
  request.messages.push_back({Role::kAssistant, last, ""});
  const auto context = chat_context(with_final_tag(request), {}, false, (*chat)->traits());
  const auto text =
      split_final_message((*chat)->render(*context).value(), opened.ok() ? *opened : std::string(),
                          final_text(request, (*chat)->traits().wants_parts));
  return text.ok() ? text->before + "|" + text->words : "error: " + std::string(text.status().message());
}

const std::string kOpens = "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}";

TEST(UpToFinal, CutsWhatTheTemplateWritesAfterTheLastMessage) {
  const std::string kChatMl =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  const std::string before = "<|im_start|>user\nThe end?<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string last :
       {"My name is", "My name is ", "end", "<", "im", "The end?", "a\n", "\n\na", " a"})
    EXPECT_EQ(gone_on_with(kChatMl, last), before + "|" + last);
  EXPECT_EQ(
      gone_on_with("{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}",
                   "My name is"),
      "<The end?><|My name is");
  EXPECT_THAT(gone_on_with("{{ messages[0].content }}", "end"), HasSubstr("cannot be gone on with"));
}

// The white space was generated, or is to be taken for that.
TEST(UpToFinal, KeepsTheWhiteSpaceThatTheTemplateTrims) {
  const std::string trims =
      "{% for m in messages %}{{ '<' + m.role[0] + '>' + m.content | trim }}{% endfor %}";
  for (const std::string last : {"My name is", " My name is \n", "\n\nMy name is", "My name is "})
    EXPECT_EQ(gone_on_with(trims + kOpens, last), "<u>The end?<a>|" + last);
  const std::string strips =
      "{% for m in messages %}{{ '<' + m.role[0] + '>' + m.content.lstrip('\n') }}{% endfor %}";
  EXPECT_EQ(gone_on_with(strips + kOpens, "\n\n My name is"), "<u>The end?<a>|\n\n My name is");
}

TEST(UpToFinal, WhiteSpaceThatTheTemplateAddsBelongsToTheWords) {
  const std::string adds =
      "{% for m in messages %}{{ '<' + m.role[0] + '> ' + m.content | trim }}{% endfor %}";
  EXPECT_EQ(gone_on_with(adds + kOpens, "My name is"), "<u> The end?<a>| My name is");
  EXPECT_EQ(gone_on_with(adds + kOpens, "\nMy name is"), "<u> The end?<a>|\nMy name is");
  EXPECT_EQ(gone_on_with(adds, "My name is"), "<u> The end?<a> |My name is");
}

TEST(UpToFinal, TakesTheTextAsTheTemplateWritesIt) {
  const std::string thinks =
      "{% for m in messages %}{{ '<' + m.role[0] + '>' }}"
      "{{ m.content.split('</t>')[-1].strip() }}{% endfor %}";
  EXPECT_EQ(gone_on_with(thinks + kOpens, "<t>hm</t> Well "), "<u>The end?<a>|Well");
  const std::string shows =
      "{% for m in messages %}{{ '<' + m.role[0] + '>' + ('<t></t>\n\n' if loop.last else '') + m.content }}"
      "{% endfor %}";
  EXPECT_EQ(gone_on_with(shows + kOpens, "Well "), "<u>The end?<a><t></t>\n\n|Well ");
}

// The mark of a template's own token ("<think>" may be one) is no part of the thought.
TEST(AsGenerated, OpenersMayBeMarked) {
  const std::string mark(kOwnMark), tag(kFinalTag.substr(0, kFinalTag.size() - 1));
  for (const std::string& own : {std::string(), mark}) {
    const std::string turn = own + "<a>", opened = turn + own + "<think>\n";
    const auto text = as_generated(turn + own + "<think>\n\n</think>\n\nwell" + tag, opened, "<think>\nwell");
    ASSERT_TRUE(text.has_value()) << own;
    EXPECT_EQ(text->before, opened);
    EXPECT_EQ(text->words, "well");
    EXPECT_FALSE(as_generated(turn + "well" + tag, turn, "well").has_value());
  }
}

}  // namespace troupe::final_words_test
