// A chat that goes on with the assistant's words has the prompt of that answer's first part: the template's
// tokens, and those that were generated.

#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <string>

#include "common/json/json.h"
#include "tests/worker/input/chat_server.h"

namespace troupe::continued_chat_test {

using Ids = std::vector<TokenId>;
using chat_server::bytes_with_line_breaks;
using chat_server::ChatServer;

std::unique_ptr<Tokenizer> llama2_pieces() {
  const std::string folder = TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/";
  bj::object file = read_json_file(folder + "pieces.json")->as_object();
  const bj::value golden = read_json_file(folder + "llama2.golden.json").value();
  for (const auto& [key, value] : golden.at("changes").as_object()) {
    if (key != "model") file[key] = value;
    if (key != "model") continue;
    for (const auto& [option, setting] : value.as_object()) file["model"].as_object()[option] = setting;
  }
  return Tokenizer::from_json(bj::serialize(file), "made.json").value();
}

GenerateRequest opened() {
  GenerateRequest request;
  request.messages = {{Role::kSystem, "You are well.", ""}, {Role::kUser, "Well?", ""}};
  return request;
}
GenerateRequest gone_on_with(const std::string& words) {
  GenerateRequest request = opened();
  request.messages.push_back({Role::kAssistant, words, ""});
  request.add_generation_prompt = false;
  request.continue_final_message = true;
  return request;
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr std::string_view kBlank = " \t\r\n";

// Cuts the answer after each of its tokens: returns how many of the cuts were tried. (White space alone is
// not gone on with, and ids that their text does not encode to are nothing that a text could keep.)
int expect_the_tokens_as_generated(const ChatServer& server, const std::string& answer) {
  const Ids before = server.prompt_of(opened());
  const Ids generated = server.tokenizer->encode(answer, false).value();
  int tried = 0;
  for (size_t count = 1; count <= generated.size(); ++count) {
    const Ids so_far(generated.begin(), generated.begin() + static_cast<std::ptrdiff_t>(count));
    const std::string text = server.text_of(so_far);
    if (text.find_first_not_of(kBlank) == std::string::npos) continue;
    if (server.tokenizer->encode(text, false).value() != so_far) continue;
    EXPECT_EQ(server.prompt_of(gone_on_with(text)), joined(before, so_far)) << '"' << text << '"';
    ++tried;
  }
  return tried;
}

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kTrims =
    "{% for m in messages %}{{ '[' + m.role + ']\n\n' + m.content | trim + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]\n\n' }}{% endif %}";
constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}";
constexpr const char* kParts =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{{ p.text }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kThinks =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if loop.last and m.role == 'assistant' %}<think>\n\n</think>\n\n{{ m.content.lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}";

// They write a thought apart: with an empty one where the text has none that is whole; or none at all, of
// earlier or later turns. The answer begins with it, or behind the opener that the turn is opened with.
constexpr const char* kThoughtIsShown =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% set thought = '' %}"
    "{% set words = m.content %}{% if '</think>' in words %}"
    "{% set thought = words.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set words = words.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<think>\n' + thought + '\n</think>\n\n' + words }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' + opener | default('') }}{% "
    "endif %}";
constexpr const char* kThoughtIsDropped =
    "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}[end]{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' + opener | default('') }}{% endif %}";
constexpr const char* kOpensAThought = R"({"opener": "<think>\n"})";

TEST(ContinuedChat, AThoughtHasTheTokensAsGenerated) {
  for (const char* source : {kThoughtIsShown, kThoughtIsDropped}) {
    const ChatServer server(bytes_with_line_breaks(), source);
    for (const bool opens_thought : {false, true}) {
      const std::string opener = opens_thought ? "" : "<think>\n";
      GenerateRequest before = opened();
      if (opens_thought) before.chat_template_kwargs_json = kOpensAThought;
      for (const std::string rest : {"well", "well: so \n", "\nwell\n</think>", "well\n</think>\n\nWell. "}) {
        GenerateRequest request = gone_on_with(opener + rest);
        request.chat_template_kwargs_json = before.chat_template_kwargs_json;
        EXPECT_EQ(server.prompt_of(request),
                  joined(server.prompt_of(before), server.tokenizer->encode(opener + rest, false).value()))
            << source << opener << rest;
      }
    }
  }
}

TEST(ContinuedChat, AThoughtIsOpenedOnce) {
  for (const char* source : {kThoughtIsShown, kThoughtIsDropped}) {
    const ChatServer server(bytes_with_line_breaks(), source);
    GenerateRequest opened_here = gone_on_with("<think>\nwell"), opened_there = gone_on_with("well");
    for (GenerateRequest* each : {&opened_here, &opened_there})
      each->chat_template_kwargs_json = kOpensAThought;
    EXPECT_EQ(server.prompt_of(opened_here), server.prompt_of(opened_there)) << source;
  }
}

// Words without a thought stand where the template writes them, and so do those whose thought comes apart.
TEST(ContinuedChat, WordsWithoutAThoughtAreTheTemplates) {
  const ChatServer server(bytes_with_line_breaks(), kThoughtIsShown);
  const auto prompt_of = [&server](const GenerateRequest& request) {
    const std::string text = server.tokenizer->decode(server.prompt_of(request), false);
    return text.substr(text.rfind("assistant\n"));
  };
  EXPECT_EQ(prompt_of(gone_on_with("Well. ")), "assistant\n<think>\n\n</think>\n\nWell. ");
  EXPECT_EQ(prompt_of(gone_on_with("<b>Well</b>")), "assistant\n<think>\n\n</think>\n\n<b>Well</b>");
  GenerateRequest apart = gone_on_with("Well. ");
  apart.messages.back().extra_json = R"({"reasoning_content":""})";
  apart.chat_template_kwargs_json = kOpensAThought;
  EXPECT_EQ(prompt_of(apart), "assistant\n<think>\n\n</think>\n\nWell. ");
}

TEST(ContinuedChat, HasTheTokensAsGenerated) {
  const std::string answers[] = {"\n\nWell, well.\n\n\nWell:\n\n  well\n \n\n\n\nwell",
                                 "Well\n\n\n\n\nwell  ", "  well.\n", "\n\n\nwell \n\n", "é宋👩well.\n\n"};
  for (const char* source : {kChatMl, kTrims, kPlain, kParts, kThinks}) {
    const ChatServer server(bytes_with_line_breaks(), source);
    int tried = 0;
    for (const std::string& answer : answers) tried += expect_the_tokens_as_generated(server, answer);
    EXPECT_GT(tried, 25) << source;
  }
}

// Its first token begins with the space that the template writes, and its text without.
TEST(ContinuedChat, HasTheSpaceBeforeItsFirstWord) {
  const ChatServer server(
      llama2_pieces(),
      "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content | trim + ' ' }}"
      "{% else %}{{ '<s>[INST] ' + m.content | trim + ' [/INST]' }}{% endif %}{% endfor %}");
  EXPECT_GT(expect_the_tokens_as_generated(server, "the character of the user"), 4);
}

// A template may refuse a chat that ends with the user's or is empty; it may write another text.
TEST(ContinuedChat, WithoutAnOpenedTurnGoesOnBehindTheTemplatesText) {
  const ChatServer server(
      bytes_with_line_breaks(),
      std::string("{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}") + kPlain);
  const Ids ids = server.prompt_of(gone_on_with("\n\nWell"));
  const std::string before = "system:\nYou are well.\nuser:\nWell?\nassistant:\n";
  const Ids template_ids = server.tokenizer->encode(before, false).value();
  EXPECT_EQ(ids, joined(template_ids, server.tokenizer->encode("\n\nWell", false).value()));

  const ChatServer shouts(bytes_with_line_breaks(),
                          "{% for m in messages %}[{{ m.content | upper }}]{% endfor %}"
                          "{% if add_generation_prompt %}[{% endif %}");
  EXPECT_EQ(shouts.tokenizer->decode(shouts.prompt_of(gone_on_with("Well \n")), false),
            "[YOU ARE WELL.][WELL?][WELL \n");
}

TEST(ContinuedChat, SeveralPartsAreGoneOnWithAsTheTemplateWritesThem) {
  for (const auto& [source, words] :
       {std::pair<const char*, std::string>{kChatMl, "Well,\n\n\nwell"}, {kParts, "Well,\n\nwell"}}) {
    const ChatServer server(bytes_with_line_breaks(), source);
    GenerateRequest request = gone_on_with("Well,\n\n\nwell");
    request.messages.back().part_bytes = {5, 6};
    EXPECT_EQ(server.prompt_of(request),
              joined(server.prompt_of(opened()), server.tokenizer->encode(words, false).value()))
        << source;
  }
}

}  // namespace troupe::continued_chat_test
