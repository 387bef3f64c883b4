#include "worker/text/tokenizer/token_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/json/json.h"
#include "worker/text/chat_context.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe::token_cache_test {

using Ids = std::vector<int32_t>;

constexpr const char* kDemoDir = TROUPE_SOURCE_DIR "/configs/demo-model";

TokenCache::Key key_of(std::string_view text, uint8_t stage = 0, bool first = false) {
  return {stage, first, text};
}

TEST(TokenCache, ReturnsStoredIds) {
  TokenCache cache;
  Ids ids{9};
  EXPECT_FALSE(cache.append(key_of("abc"), ids));
  cache.put(key_of("abc"), {1, 2});
  cache.put(key_of("abc", 1), {3});
  cache.put(key_of("abc", 0, true), {4});
  EXPECT_TRUE(cache.append(key_of("abc"), ids));
  EXPECT_TRUE(cache.append(key_of("abc", 1), ids));
  EXPECT_TRUE(cache.append(key_of("abc", 0, true), ids));
  EXPECT_FALSE(cache.append(key_of("abcd"), ids));
  EXPECT_EQ(ids, (Ids{9, 1, 2, 3, 4}));
  EXPECT_EQ(cache.stats().lookups, 5u);
  EXPECT_EQ(cache.stats().hits, 3u);
}

TEST(TokenCache, StaysWithinItsBytesAndDropsTheLeastRecentlyUsed) {
  TokenCache::Options options;
  options.bytes_max = 64 << 10;
  options.entry_bytes_max = 8 << 10;
  TokenCache cache(options);
  const std::string persona(1000, 'p');
  cache.put(key_of(persona), Ids(100, 7));
  Ids ids;
  for (int i = 0; i < 1000; ++i) {
    cache.put(key_of(std::string(900, 'x') + std::to_string(i)), Ids(50, i));
    EXPECT_LE(cache.stats().bytes, options.bytes_max);
    EXPECT_TRUE(cache.append(key_of(persona), ids)) << "used all the time, and gone after " << i;
  }
  EXPECT_FALSE(cache.append(key_of(std::string(900, 'x') + "0"), ids));
  EXPECT_TRUE(cache.append(key_of(std::string(900, 'x') + "999"), ids));
  EXPECT_GT(cache.stats().bytes, options.bytes_max / 2);
  const size_t before = cache.stats().bytes;
  cache.put(key_of(std::string(9 << 10, 'y')), {1});
  EXPECT_EQ(cache.stats().bytes, before) << "one text must not push all others out";
}

TEST(TokenCache, ManyThreadsShareOneCache) {
  TokenCache::Options options;
  options.bytes_max = 20 << 10;
  TokenCache cache(options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const auto n = static_cast<int32_t>(rng() % 200);
        const std::string text = std::string(100, 't') + std::to_string(n);
        Ids ids;
        if (!cache.append(key_of(text), ids)) {
          cache.put(key_of(text), {n});
        } else if (ids != Ids{n}) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cache.stats().hits, 0u);
}

// Random chats over few cards, so that stretches repeat; every text is encoded both ways.
void expect_same_ids(const Tokenizer& tokenizer, const std::vector<std::string>& marks, uint32_t seed) {
  TokenCache::Options options;
  options.text_bytes_min = 6;
  options.bytes_max = 16 << 10;  // small, so that entries are evicted, too
  TokenCache cache(options);
  std::mt19937 rng(seed);
  const auto pick = [&rng](const auto& from) { return from[rng() % std::size(from)]; };
  const std::vector<std::string> words{" ", "  ",   "\n", "ab",    "bcd", "Grüße",  "e\u0301", "ﬁ",  "宋江",
                                       "👩", "word", ".",  "don't", "12",  "\u00a0", "a b c",   "<|x"};
  std::vector<std::string> cards;
  for (int i = 0; i < 12; ++i) {
    std::string& card = cards.emplace_back();
    for (size_t n = 1 + rng() % 20; n > 0; --n) card += pick(words);
  }
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (size_t n = rng() % 8; n > 0; --n) {
      if (rng() % 4 != 0) text += pick(marks);
      text += rng() % 3 == 0 ? pick(words) : pick(cards);
    }
    if (rng() % 2 == 0) text += pick(marks);
    const auto plain = tokenizer.encode(text, true);
    const auto cached = tokenizer.encode(text, true, &cache);
    ASSERT_TRUE(plain.ok() && cached.ok()) << plain.status() << cached.status();
    ASSERT_EQ(*plain, *cached) << text;
  }
  EXPECT_GT(cache.stats().hits, 20u);
}

TEST(TokenCache, RandomChatsEncodeToTheSameIds) {
  const auto tokenizer = Tokenizer::load(kDemoDir);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  expect_same_ids(**tokenizer, {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}, 1);
}

TEST(TokenCache, EveryKindOfAddedTokenCutsExactly) {
  bj::object file = read_json_file(std::string(kDemoDir) + "/tokenizer.json")->get_object();
  bj::array added = file["added_tokens"].as_array();
  std::vector<std::string> marks{"<|im_start|>", "<|im_end|>"};
  for (int flags = 0; flags < 16; ++flags) {
    const std::string content = "<|" + std::string(1, static_cast<char>('a' + flags)) + "b|>";
    marks.push_back(content);
    added.push_back(bj::object{{"id", 4096 + flags},
                               {"content", content},
                               {"special", true},
                               {"lstrip", (flags & 1) != 0},
                               {"rstrip", (flags & 2) != 0},
                               {"single_word", (flags & 4) != 0},
                               {"normalized", (flags & 8) != 0}});
  }
  file["added_tokens"] = added;
  for (const char* normalizer : {"NFC", "NFKC"}) {
    file["normalizer"] = bj::object{{"type", normalizer}};
    const auto tokenizer = Tokenizer::from_json(bj::serialize(file), "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    expect_same_ids(**tokenizer, marks, 2);
    // Only tokens that are matched in normalised text.
    expect_same_ids(**tokenizer, {marks.begin() + 10, marks.end()}, 3);
  }
}

TEST(TokenCache, SentencePieceModelsEncodeToTheSameIds) {
  for (const char* name : {"bpe", "unigram"}) {
    for (const bool legacy : {false, true}) {
      std::ifstream file(TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/" + std::string(name) + ".model",
                         std::ios::binary);
      std::ostringstream bytes;
      bytes << file.rdbuf();
      const bj::value config = *parse_json(
          std::string(R"({"legacy":)") + (legacy ? "true" : "false") +
          R"(,"add_bos_token":true,"bos_token":"<s>","added_tokens_decoder":{"1":{"content":"<s>","special":true},)"
          R"("2":{"content":"</s>","special":true,"rstrip":true}}})");
      const auto tokenizer =
          Tokenizer::from_sentencepiece(bytes.str(), config.get_object(), "tokenizer.model");
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      expect_same_ids(**tokenizer, {"<s>", "</s>"}, 4);
    }
  }
}

TEST(TokenCache, EncodesAPersonasCardOnce) {
  const auto tokenizer = Tokenizer::load(kDemoDir);
  const auto chat = ChatTemplate::load(kDemoDir);
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  TokenCache cache;
  const std::string card(2000, 'c');
  for (int user = 0; user < 10; ++user) {
    GenerateRequest request;
    request.messages = {{Role::kSystem, card, ""}, {Role::kUser, "Hi, I am " + std::to_string(user), ""}};
    const auto text = (*chat)->render(*chat_context(request, {}));
    ASSERT_TRUE((*tokenizer)->encode(*text, false, &cache).ok());
  }
  EXPECT_EQ(cache.stats().lookups, 10u) << "the short turns are not worth it";
  EXPECT_EQ(cache.stats().hits, 9u);
  const std::string prompt(5000, 'o');
  ASSERT_TRUE((*tokenizer)->encode(prompt, false, &cache).ok());
  EXPECT_EQ(cache.stats().lookups, 10u) << "nothing cuts a bare prompt";
}

}  // namespace troupe::token_cache_test
