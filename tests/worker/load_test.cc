// The files a model directory needs to be served.

#include "worker/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/core/metrics.h"
#include "tests/worker/model/tiny_model.h"

namespace troupe {
namespace load_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Copies only these files of the demo model's directory.
void copy_demo_files(const TempDir& dir, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    fs::copy(TROUPE_SOURCE_DIR "/configs/demo-model/" + file, dir.path() + "/" + file);
  }
}

StatusOr<LoadedModel> load(const TempDir& dir, LoadFormat load_format) {
  WorkerSettings settings;
  settings.runner.model_dir = dir.path();
  settings.runner.load_format = load_format;
  settings.runner.threads = 1;
  EXPECT_TRUE(resolve_worker_settings(settings).ok());
  Metrics metrics;
  const Logger log(LogLevel::kError);
  return load_model(settings, metrics, log);
}

TEST(LoadModel, DummyNeedsNoWeights) {
  const TempDir dir;
  copy_demo_files(dir, {"config.json", "tokenizer.json"});
  const auto dummy = load(dir, LoadFormat::kDummy);
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_EQ(dummy->served.config.vocab_size, 4096);
  EXPECT_THAT(std::string(load(dir, LoadFormat::kAuto).status().message()),
              HasSubstr("has neither model.safetensors"));
}

TEST(LoadModel, DummyNeedsNoTokenizer) {
  const TempDir dir;
  TinyModel model;
  model.config["vocab_size"] = 16384;
  dir.write("config.json", boost::json::serialize(model.config));
  const auto dummy = load(dir, LoadFormat::kDummy);
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_NE(dummy->chat_template, nullptr);
  EXPECT_LE(dummy->tokenizer->vocab_size(), 16384);
  EXPECT_THAT(std::string(load(dir, LoadFormat::kAuto).status().message()), HasSubstr("tokenizer.json"));
}

// The eos_token that the files name ends an answer beside config.json's ids.
TEST(LoadModel, TokenizersEosEndsAnswersToo) {
  struct Case {
    std::string config, map;
    bool is_added;
  };
  for (const auto& [config, map, is_added] : std::vector<Case>{
           {R"({"eos_token":"<|im_start|>"})", "", true},
           {R"({"eos_token":{"content":"<|im_start|>"}})", "", true},
           {R"({"eos_token":null})", R"({"eos_token":"<|im_start|>"})", true},
           {R"({"eos_token":"<|im_end|>"})", R"({"eos_token":{"content":"<|im_start|>"}})", true},
           {R"({"eos_token":"<|im_end|>","added_tokens_decoder":{}})", R"({"eos_token":"<|im_start|>"})",
            false},
           {R"({"eos_token":"no such token"})", "", false},
           {"\xEF\xBB\xBF{}", "", false}}) {
    const TempDir dir;
    copy_demo_files(dir, {"config.json", "tokenizer.json"});
    dir.write("tokenizer_config.json", config);
    if (!map.empty()) dir.write("special_tokens_map.json", map);
    const auto model = load(dir, LoadFormat::kDummy);
    ASSERT_TRUE(model.ok()) << model.status();
    const int32_t id = model->tokenizer->token_to_id("<|im_start|>").value();
    const std::vector<int32_t>& ids = model->served.config.eos_token_ids;
    EXPECT_EQ(std::find(ids.begin(), ids.end(), id) != ids.end(), is_added) << config << map;
    EXPECT_FALSE(ids.empty());
  }
}

// From additional_chat_templates, or from tokenizer_config.json's list. One that cannot be parsed is not
// there.
TEST(LoadModel, RequestsMayNameATemplate) {
  for (const bool in_file : {true, false}) {
    const TempDir dir;
    copy_demo_files(dir, {"config.json", "tokenizer.json"});
    const std::string rag = "R{{ documents[0].title }}";
    if (in_file) {
      dir.write("chat_template.jinja", "D");
      fs::create_directory(dir.path() + "/additional_chat_templates");
      dir.write("additional_chat_templates/rag.jinja", rag);
      dir.write("additional_chat_templates/broken.jinja", "{% if %}");
      fs::create_symlink("nowhere", dir.path() + "/additional_chat_templates/gone.jinja");
    } else {
      dir.write("tokenizer_config.json", R"({"chat_template":[{"name":"default","template":"D"},)"
                                         R"({"name":"rag","template":")" +
                                             rag + R"("}]})");
    }
    const auto model = load(dir, LoadFormat::kDummy);
    ASSERT_TRUE(model.ok()) << model.status();
    GenerateRequest request;
    request.messages = {{Role::kUser, "Hi", ""}};
    const auto text = [&](const std::string& kwargs) {
      request.chat_template_kwargs_json = kwargs;
      auto ids = encode_chat(model->served, request);
      return ids.ok() ? model->tokenizer->decode(*ids, /*skip_special=*/false) : ids.error().message;
    };
    EXPECT_EQ(text(""), "D");
    EXPECT_EQ(text(R"({"chat_template":"rag","documents":[{"title":"T"}]})"), "RT");
    EXPECT_EQ(text(R"({"chat_template":"rag","n":99999999999999999999,"documents":[{"title":"T"}]})"), "RT");
    EXPECT_EQ(text(R"({"chat_template":"default"})"), "D");
    EXPECT_EQ(text(R"({"chat_template":null})"), "D");
    for (const char* wrong : {R"({"chat_template":"tool_use"})", R"({"chat_template":5})",
                              R"({"chat_template":"{{ messages }}"})", R"({"chat_template":"../rag"})",
                              R"({"chat_template":"gone"})", R"({"chat_template":99999999999999999999})"}) {
      EXPECT_THAT(text(wrong), HasSubstr("has: default, rag")) << wrong;
    }
  }
}

TEST(LoadModel, TemplateWithoutATextIsNone) {
  const TempDir dir;
  copy_demo_files(dir, {"config.json", "tokenizer.json"});
  dir.write("tokenizer_config.json", R"({"chat_template":{"default":"D","rag":null}})");
  const auto model = load(dir, LoadFormat::kDummy);
  ASSERT_TRUE(model.ok()) << model.status();
  GenerateRequest request;
  request.messages = {{Role::kUser, "Hi", ""}};
  request.chat_template_kwargs_json = R"({"chat_template":"rag"})";
  const auto ids = encode_chat(model->served, request);
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("has: default"));
}

TEST(LoadModel, RequestsWithToolsHaveATemplateOfTheirOwnWhereThereIsOne) {
  for (const bool in_file : {true, false}) {
    const TempDir dir;
    copy_demo_files(dir, {"config.json", "tokenizer.json"});
    if (in_file) {
      dir.write("chat_template.jinja", "D");
      fs::create_directory(dir.path() + "/additional_chat_templates");
      dir.write("additional_chat_templates/tool_use.jinja", "T");
    } else {
      dir.write("tokenizer_config.json", R"({"chat_template":[{"name":"default","template":"D"},)"
                                         R"({"name":"tool_use","template":"T"}]})");
    }
    const auto model = load(dir, LoadFormat::kDummy);
    ASSERT_TRUE(model.ok()) << model.status();
    GenerateRequest request;
    request.messages = {{Role::kUser, "Hi", ""}};
    const auto text = [&] {
      return model->tokenizer->decode(encode_chat(model->served, request).value(), /*skip_special=*/false);
    };
    EXPECT_EQ(text(), "D");
    request.tools_json = "[{}]";
    EXPECT_EQ(text(), "T");
  }
}

// From the configuration's line to what a request may come to.
TEST(LoadModel, OpenAiDefaultsEndCompletionsAtSixteenTokens) {
  for (const bool on : {true, false}) {
    WorkerSettings settings;
    SettingsSchema schema("troupe-worker", "test");
    describe_worker_settings(schema, settings);
    const std::string yaml =
        "model: " TROUPE_SOURCE_DIR "/configs/demo-model\nload_format: dummy\nthreads: 1\n";
    ASSERT_TRUE(schema.load_yaml(yaml + (on ? "openai_defaults: true\n" : ""), "worker.yaml").ok());
    ASSERT_TRUE(resolve_worker_settings(settings).ok());
    Metrics metrics;
    const auto model = load_model(settings, metrics, Logger(LogLevel::kError));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto count_max = [&](GenerateRequest::Kind kind, const std::string& fields) {
      auto prepared = prepare_request(model->served, kind, "{" + fields + "}", /*random_seed=*/1);
      EXPECT_TRUE(prepared.ok()) << prepared.error().message;
      return prepared.ok() ? prepared->engine.max_new_count : -1;
    };
    const auto completion = GenerateRequest::Kind::kCompletion, chat = GenerateRequest::Kind::kChat;
    const int left = count_max(completion, R"("prompt":[5])");
    EXPECT_EQ(left, on ? 16 : model->served.total_count_max - 1);
    EXPECT_EQ(count_max(completion, R"("prompt":[5],"max_tokens":20)"), 20);
    EXPECT_GT(count_max(chat, R"("messages":[{"role":"user","content":"Hi"}])"), 1000);
  }
}

TEST(LoadModel, DummyRefusesVocabularySmallerThanItsWords) {
  const TempDir dir;
  TinyModel().write(dir);
  fs::remove(dir.path() + "/model.safetensors");
  EXPECT_THAT(std::string(load(dir, LoadFormat::kDummy).status().message()),
              HasSubstr("/config.json: key 'vocab_size': 12 is less than the"));
}

}  // namespace load_test
}  // namespace troupe
