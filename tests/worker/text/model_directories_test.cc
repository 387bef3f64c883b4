// Sixty model directories, and what Transformers' tokenizer object makes of each:
// tests/fixtures/directories.json, which tests/fixtures/make_directories.py writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "common/json/json.h"
#include "tests/cpu_time.h"
#include "worker/text/chat_context.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"
#include "worker/text/tokenizer/tokenizer_class.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe {
namespace model_directories_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kFixtures = TROUPE_SOURCE_DIR "/tests/fixtures";

std::string text_of(const bj::value& value) {
  const bj::string& text = value.get_string();
  return {text.data(), text.size()};
}

std::vector<int32_t> ids_of(const bj::value& value) {
  std::vector<int32_t> ids;
  for (const bj::value& id : value.get_array()) ids.push_back(static_cast<int32_t>(id.get_int64()));
  return ids;
}

class Directory {
 public:
  explicit Directory(const std::string& name) : path_(fs::path(::testing::TempDir()) / ("dir_" + name)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Directory() { fs::remove_all(path_); }

  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

  // A fixture's file: its text, or its JSON, whose vocabulary may be another fixture's.
  void add(const std::string& name, bj::value content) const {
    if (content.is_object()) {
      bj::object& model = content.get_object().at("model").get_object();
      for (const char* part : {"vocab", "merges"}) {
        if (!model.contains(part) || !model.at(part).is_string()) continue;
        const auto base =
            read_json_file(kFixtures + "/tokenizers/" + text_of(model.at(part)).substr(1) + ".json");
        model[part] = base->get_object().at("model").get_object().at(part);
      }
      return write(name, to_json(content));
    }
    const std::string text = text_of(content);
    if (name != "tokenizer.model") return write(name, text);
    fs::copy_file(kFixtures + "/tokenizers/" + text.substr(1), path_ / name);
  }

  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

const bj::object& fixture() {
  static const bj::value kRead = std::move(read_json_file(kFixtures + "/directories.json")).value();
  return kRead.get_object();
}

std::set<std::string> special_texts(const TokenizerConfig& config) {
  std::set<std::string> texts;
  for (const NamedToken& named : config.named) texts.insert(named.token.content);
  for (const AddedToken& token : config.extra) texts.insert(token.content);
  return texts;
}

std::set<std::string> golden_texts(const bj::object& golden) {
  std::set<std::string> texts;
  for (const bj::value& text : golden.at("all_special_tokens").get_array()) texts.insert(text_of(text));
  return texts;
}

bj::object named_variables(const TokenizerConfig& config) {
  bj::object variables = config.variables();
  variables.erase("additional_special_tokens");  // of Transformers 4, whose templates may read it
  return variables;
}

void check_names(const bj::object& golden, const TokenizerConfig& config) {
  EXPECT_EQ(special_texts(config), golden_texts(golden));
  EXPECT_EQ(named_variables(config), golden.at("special_tokens_map").get_object());
}

void check_id(const bj::object& golden, const Tokenizer& tokenizer, const std::string& name) {
  const bj::value& id = golden.at(name + "_id");
  const auto text = tokenizer.config().named_text(name);
  ASSERT_EQ(text.has_value(), !id.is_null()) << name;
  if (!text) return;
  EXPECT_EQ(tokenizer.token_to_id(*text), id.get_int64()) << name;
}

void check_texts(const bj::object& golden, const Tokenizer& tokenizer) {
  for (const bj::value& pair : golden.at("encoded").get_array()) {
    const std::string text = text_of(pair.get_array().at(0));
    EXPECT_EQ(tokenizer.encode(text, false).value(), ids_of(pair.get_array().at(1))) << text;
  }
  for (const bj::value& entry : golden.at("decoded").get_array()) {
    const std::vector<int32_t> ids = ids_of(entry.get_array().at(0));
    EXPECT_EQ(tokenizer.decode(ids, false), text_of(entry.get_array().at(1)))
        << to_json(entry.get_array().at(0));
    EXPECT_EQ(tokenizer.decode(ids, true), text_of(entry.get_array().at(2)))
        << to_json(entry.get_array().at(0));
  }
}

GenerateRequest request_of(const bj::object& chat) {
  GenerateRequest request;
  for (const bj::value& message : chat.at("messages").get_array()) {
    const std::string role = text_of(message.at("role"));
    request.messages.push_back({role == "system"      ? Role::kSystem
                                : role == "assistant" ? Role::kAssistant
                                                      : Role::kUser,
                                text_of(message.at("content")), ""});
  }
  if (const bj::value* tools = chat.if_contains("tools")) request.tools_json = to_json(*tools);
  return request;
}

// As the worker takes a chat's template: the one for tools where there are tools and it is there.
StatusOr<std::string> render(const std::string& dir, const bj::object& chat, const TokenizerConfig& config) {
  StatusOr<std::unique_ptr<ChatTemplate>> loaded = absl::NotFoundError("");
  if (chat.contains("tools")) loaded = ChatTemplate::load(dir, kToolTemplate);
  if (absl::IsNotFound(loaded.status())) loaded = ChatTemplate::load(dir);
  if (!loaded.ok()) return loaded.status();
  const auto context = chat_context(request_of(chat), config.variables(),
                                    chat.contains("add_generation_prompt"), (*loaded)->traits());
  return context.ok() ? (*loaded)->render(*context) : StatusOr<std::string>(context.status());
}

void check_chats(const bj::object& golden, const std::string& dir, const Tokenizer& tokenizer, bool has_ids) {
  const bj::array& chats = fixture().at("chats").get_array();
  for (size_t i = 0; i < chats.size(); ++i) {
    const auto text = render(dir, chats[i].get_object(), tokenizer.config());
    const bj::value& wanted = golden.at("chats").get_array().at(i);
    if (wanted.is_null()) {
      EXPECT_TRUE(absl::IsNotFound(text.status())) << text.status();
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, text_of(wanted.at("text")));
    if (!has_ids) continue;
    EXPECT_EQ(tokenizer.encode(*text, false).value(), ids_of(wanted.at("ids")));
  }
}

bool is_unlike(const bj::value& entry, const std::string& aspect) {
  const bj::value* unlike = entry.get_object().if_contains("unlike");
  if (unlike == nullptr) return false;
  const bj::array& aspects = unlike->get_array();
  return std::any_of(aspects.begin(), aspects.end(),
                     [&](const bj::value& each) { return text_of(each) == aspect; });
}

TEST(ModelDirectories, AreWhatTransformersMakesOfThem) {
  const bj::array& directories = fixture().at("directories").get_array();
  EXPECT_GE(directories.size(), 60u);
  for (const bj::value& entry : directories) {
    const std::string name = text_of(entry.at("name"));
    SCOPED_TRACE(name);
    const bj::object& golden = entry.at("golden").get_object();
    const Directory dir(name);
    for (const auto& file : entry.at("files").get_object()) {
      dir.add(std::string(file.key().data(), file.key().size()), file.value());
    }
    const auto tokenizer = Tokenizer::load(dir.path());
    if (absl::IsUnimplemented(tokenizer.status())) {  // BERT's words, of no model that is served
      EXPECT_EQ(name, "bert") << tokenizer.status();
      check_names(golden, TokenizerConfig::read(dir.path(), {}).value());
      continue;
    }
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    check_names(golden, (*tokenizer)->config());
    check_id(golden, **tokenizer, "eos_token");
    check_id(golden, **tokenizer, "bos_token");
    check_chats(golden, dir.path(), **tokenizer, !is_unlike(entry, "ids"));
    if (!is_unlike(entry, "ids")) check_texts(golden, **tokenizer);
    if (!is_unlike(entry, "whole")) {
      EXPECT_EQ((*tokenizer)->encode("Hello, world!", true).value(), ids_of(golden.at("whole")));
    }
  }
}

TEST(ModelDirectories, ClassesHaveTheirTokens) {
  for (const auto& entry : fixture().at("classes").get_object()) {
    const std::string name(entry.key().data(), entry.key().size());
    for (const char* ending : {"", "Fast"}) {
      const TokenizerClass* found = find_tokenizer_class(name + ending);
      ASSERT_NE(found, nullptr) << name;
      for (size_t i = 0; i < kTokenNames.size(); ++i) {
        const bj::value* wanted = entry.value().get_object().if_contains(std::string(kTokenNames[i]));
        EXPECT_EQ(found->tokens[i], wanted == nullptr ? "" : text_of(*wanted))
            << name << " " << kTokenNames[i];
      }
    }
  }
  EXPECT_EQ(find_tokenizer_class("PreTrainedTokenizerFast"), nullptr);
  EXPECT_EQ(find_tokenizer_class(""), nullptr);
  EXPECT_EQ(find_tokenizer_class(" "), nullptr);
}

std::string error_of(const std::string& dir) {
  const auto tokenizer = Tokenizer::load(dir);
  if (!tokenizer.ok()) return std::string(tokenizer.status().message());
  const auto chat = ChatTemplate::load(dir);
  return chat.ok() ? "no error" : std::string(chat.status().message());
}

// Values that no reader can make sense of, in every key that is read.
TEST(ModelDirectories, ErrorsNameFileAndKey) {
  struct Case {
    std::string file, key;
    std::vector<std::string> values;
  };
  const std::vector<std::string> no_tokens = {
      "5", "true", "[]", "{}", R"({"content": 5})", R"({"content": "a", "lstrip": 1})"};
  const std::vector<std::string> no_lists = {"5", R"("<x>")", "[5]", "[null]", "[[]]", R"({"a": 5})"};
  std::vector<Case> cases = {
      {"tokenizer_config.json", "extra_special_tokens", no_lists},
      {"tokenizer_config.json", "additional_special_tokens", no_lists},
      {"tokenizer_config.json",
       "added_tokens_decoder",
       {"5", "[]", R"({"x": {"content": "a"}})", R"({"-1": {"content": "a"}})", R"({"5": "a"})",
        R"({"5": {}})", R"({"4194304": {"content": "a"}})", R"({"5": {"content": "a", "special": 1}})"}},
      {"tokenizer_config.json", "tokenizer_class", {"5", "[]"}},
      {"tokenizer_config.json", "split_special_tokens", {"5", R"("yes")"}},
      {"tokenizer_config.json", "add_bos_token", {"5", R"("<s>x")"}},
      {"tokenizer_config.json", "legacy", {"5"}},
      {"tokenizer_config.json", "add_prefix_space", {"[]"}},
      {"tokenizer_config.json",
       "chat_template",
       {"5", "true", "[5]", R"([{"name": 5}])", R"([{"name": "default"}])",
        R"([{"name": "default", "template": 5}])", R"({"default": 5})", R"("{% if %}")",
        R"({"default": "{% if %}"})"}},
      {"special_tokens_map.json", "additional_special_tokens", no_lists},
      {"special_tokens_map.json", "extra_special_tokens", no_lists},
      {"special_tokens_map.json", "image_token", {"{}", R"({"content": 5})"}},
      {"added_tokens.json", "<x>", {R"("5")", "-1", "4194304", "null", "1.5", "[]"}},
      {"config.json", "model_type", {"5"}},
  };
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    cases.push_back({"tokenizer_config.json", name, no_tokens});
    cases.push_back({"special_tokens_map.json", name, no_tokens});
  }
  for (const Case& each : cases) {
    for (const std::string& value : each.values) {
      const Directory dir("hostile");
      dir.add("tokenizer.json", fixture().at("directories").at(0).at("files").at("tokenizer.json"));
      dir.write(each.file, R"({")" + each.key + R"(": )" + value + "}");
      EXPECT_THAT(error_of(dir.path()), HasSubstr(each.file + ": " + each.key)) << value;
    }
  }
}

// Transformers ignores an added token without text: nothing in a text is one.
TEST(ModelDirectories, TokensWithoutTextAreLeftOut) {
  const bj::value plain = fixture().at("directories").at(0).at("files").at("tokenizer.json");
  bj::value with_two = plain;
  for (const int id : {5, 4'000'000}) {
    with_two.get_object()["added_tokens"].get_array().push_back(
        bj::object{{"id", id}, {"content", ""}, {"special", true}});
  }
  struct Case {
    std::string file, content;
    size_t told;
  };
  const Case cases[] = {
      {"tokenizer.json", "two of them", 2},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": ""}, "6": {"content": ""}}})",
       2},
      {"tokenizer_config.json", R"({"eos_token": {"content": ""}, "pad_token": ""})", 0},
      {"special_tokens_map.json", R"({"bos_token": {"content": ""}})", 0},
      {"added_tokens.json", R"({"": 5})", 1},
  };
  const Directory reference("plain");
  reference.add("tokenizer.json", plain);
  const auto expected = Tokenizer::load(reference.path());
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const Case& each : cases) {
    const Directory dir("without_text");
    dir.add("tokenizer.json", each.file == "tokenizer.json" ? with_two : plain);
    if (each.file != "tokenizer.json") dir.write(each.file, each.content);
    const auto tokenizer = Tokenizer::load(dir.path());
    ASSERT_TRUE(tokenizer.ok()) << each.content << ": " << tokenizer.status();
    EXPECT_EQ((*tokenizer)->config().without_text.size(), each.told) << each.content;
    EXPECT_EQ((*tokenizer)->vocab_size(), (*expected)->vocab_size());
    EXPECT_EQ(*(*tokenizer)->encode("Hello, you!", false), *(*expected)->encode("Hello, you!", false));
  }
}

TEST(ModelDirectories, FilesThatAreNoObjectsAreNamed) {
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"}) {
    for (const char* content : {"null", "[]", "5", "\"x\"", "", "{", "\xEF\xBB\xBF"}) {
      const Directory dir("hostile");
      dir.add("tokenizer.json", fixture().at("directories").at(0).at("files").at("tokenizer.json"));
      dir.write(file, content);
      EXPECT_THAT(error_of(dir.path()), HasSubstr(file)) << content;
    }
  }
}

// Lists as long as a file may have them take no time that grows with their square.
TEST(ModelDirectories, LongListsLoadInTime) {
  std::string list, decoder;
  for (int i = 0; i < 200'000; ++i) {
    const std::string text = "\"<|" + std::to_string(i) + "|>\"";
    list += (i > 0 ? "," : "") + text;
    decoder += (i > 0 ? ",\"" : "\"") + std::to_string(1000 + i) + "\":{\"content\":" + text + "}";
  }
  for (const std::string& config :
       {"{\"extra_special_tokens\": [" + list + "]}", "{\"added_tokens_decoder\": {" + decoder + "}}"}) {
    const Directory dir("hostile");
    dir.add("tokenizer.json", fixture().at("directories").at(0).at("files").at("tokenizer.json"));
    dir.write("tokenizer_config.json", config);
    const double begin = cpu_seconds();
    const auto tokenizer = Tokenizer::load(dir.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_TRUE((*tokenizer)->token_to_id("<|199999|>"));
    EXPECT_LT(cpu_seconds() - begin, 30);
  }
}

}  // namespace model_directories_test
}  // namespace troupe
