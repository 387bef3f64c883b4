#pragma once

// A model's text side for tests of chats: a tokenizer of bytes and a template given as text.

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "worker/input/own_tokens.h"
#include "worker/input/prompt_pipeline.h"
#include "worker/text/tokenizer/byte_level.h"

namespace troupe::chat_server {

// Bytes, and tokens for runs of line breaks and for signs before them, cut as Qwen 2's and Llama 3's texts
// are.
inline std::unique_ptr<Tokenizer> bytes_with_line_breaks(const std::vector<std::string>& special = {
                                                             "<|im_start|>", "<|im_end|>"}) {
  const auto spelled = [](std::string_view bytes) {
    std::string token;
    append_byte_level(token, bytes);
    return token;
  };
  bj::object vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[spelled(std::string(1, static_cast<char>(byte)))] = byte;
  bj::array merges;
  const std::pair<std::string, std::string> kMerges[] = {
      {"\n", "\n"}, {"\n\n", "\n"}, {"\n\n", "\n\n"}, {":", "\n\n"}, {".", "\n\n"}, {"e", "l"},  {"el", "l"},
      {"W", "ell"}, {"w", "ell"},   {" ", "well"},    {" ", " "},    {"  ", " "},   {">", "\n"}, {"t", "\n"}};
  for (const auto& [left, right] : kMerges) {
    merges.push_back(bj::array{bj::value(spelled(left)), bj::value(spelled(right))});
    vocab[spelled(left + right)] = vocab.size();
  }
  bj::array added;
  for (const std::string& content : special) {
    added.push_back(bj::object{
        {"id", 300 + added.size()}, {"content", content}, {"special", true}, {"normalized", false}});
  }
  const bj::value split = *parse_json(
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":)"
      R"("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})");
  const bj::object file{{"added_tokens", added},
                        {"pre_tokenizer", split},
                        {"decoder", *parse_json(R"({"type":"ByteLevel"})")},
                        {"model", bj::object{{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  return Tokenizer::from_json(bj::serialize(file), "made.json").value();
}

struct ChatServer {
  ChatServer(std::unique_ptr<Tokenizer> its_tokenizer, const std::string& source)
      : tokenizer(std::move(its_tokenizer)), chat_template(ChatTemplate::parse(source).value()) {
    chat_template->probe();
    model.tokenizer = tokenizer.get();
    model.chat_template = chat_template.get();
    model.config.vocab_size = tokenizer->vocab_size();
    model.total_count_max = 4096;
    model.prompt_bytes_max = 1 << 16;
    mark();
  }
  // After a change of the model's special tokens.
  void mark() {
    ChatTemplate* const templates[] = {chat_template.get()};
    mark_own_tokens(model, templates);
  }
  std::vector<TokenId> prompt_of(const GenerateRequest& request) const {
    auto ids = encode_chat(model, request, encoding_of(request));
    EXPECT_TRUE(ids.ok()) << ids.error().message;
    return ids.ok() ? *ids : std::vector<TokenId>();
  }
  // An answer's ids up to some token, as text.
  std::string text_of(const std::vector<TokenId>& ids) const {
    auto stream = tokenizer->stream(/*skip_special=*/true, /*at_start=*/true);
    std::string text;
    for (const TokenId id : ids) text += stream->push(id);
    return text + stream->finish();
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  ServedModel model;
};

}  // namespace troupe::chat_server
