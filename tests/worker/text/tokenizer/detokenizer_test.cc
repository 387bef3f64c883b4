#include "worker/text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "common/json/json.h"

namespace troupe {
namespace detokenizer_test {

const Tokenizer& demo() {
  static const auto tokenizer = Tokenizer::load(TROUPE_SOURCE_DIR "/configs/demo-model");
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return **tokenizer;
}

std::vector<int32_t> ids_of(std::string_view text) {
  return *demo().encode(text, false);
}

// Encodes each byte of the text as one token, so that characters and stop strings are cut everywhere.
std::vector<int32_t> byte_ids(const std::string& text) {
  static const std::vector<int32_t> by_byte = [] {
    std::vector<int32_t> table(256, -1);
    for (int32_t id = 0; id < demo().vocab_size(); ++id) {
      std::string_view bytes = demo().token_bytes(id, true);
      if (bytes.size() == 1) table[static_cast<unsigned char>(bytes[0])] = id;
    }
    return table;
  }();
  std::vector<int32_t> ids;
  for (char c : text) ids.push_back(by_byte[static_cast<unsigned char>(c)]);
  return ids;
}

std::string stream(const std::vector<int32_t>& ids, const std::vector<std::string>& stops,
                   bool* stopped = nullptr) {
  Detokenizer detokenizer(&demo(), stops);
  std::string all;
  for (int32_t id : ids) {
    std::string text = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(text));
    all += text;
  }
  all += detokenizer.finish();
  if (stopped != nullptr) *stopped = detokenizer.stopped();
  return all;
}

TEST(Detokenizer, LeavesOutACharacterThatTheEndCutsOff) {
  EXPECT_EQ(stream(byte_ids("A\xF0\x9F\x99"), {}), "A");
  EXPECT_EQ(stream(byte_ids("A\xC3"), {}), "A");
  EXPECT_EQ(stream(byte_ids("A\x80"), {}), "A\uFFFD") << "no character's beginning";
  EXPECT_EQ(stream(byte_ids("A\xF0\x9Fx"), {}), "A\uFFFDx");
  EXPECT_EQ(demo().decode(byte_ids("A\xC3"), true), "A\uFFFD") << "a text that is decoded has all of it";
}

TEST(Detokenizer, NeverEmitsHalfACharacter) {
  Detokenizer detokenizer(&demo(), {});
  std::vector<int32_t> ids = byte_ids("é👩");
  std::vector<std::string> texts;
  for (int32_t id : ids) texts.push_back(detokenizer.push(id));
  EXPECT_EQ(texts, (std::vector<std::string>{"", "é", "", "", "", "👩"}));
}

// As an answer has it: without a character that the end cuts off.
std::string whole_text(const std::vector<int32_t>& ids) {
  const auto tokens = demo().stream(/*skip_special=*/true);
  std::string text;
  for (int32_t id : ids) text += tokens->push(id);
  text += tokens->finish(/*keeps_cut_character=*/false);
  std::string decoded = demo().decode(ids, true);
  EXPECT_TRUE(decoded == text || decoded == text + "\uFFFD");
  return text;
}

TEST(Detokenizer, StreamOfAnyIdsEqualsWholeDecode) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(rng() % 40);
    for (int32_t& id : ids) {
      // Half of the ids are single-byte tokens, the source of invalid UTF-8.
      id = static_cast<int32_t>(rng() % 2 == 0 ? 3 + rng() % 256 : rng() % 4100);
    }
    EXPECT_EQ(stream(ids, {}), whole_text(ids));
    EXPECT_EQ(stream(ids, {"\xF0\x9F\x98\x80 never"}), whole_text(ids));
  }
}

TEST(Detokenizer, SkipsSpecialTokens) {
  EXPECT_EQ(stream({1, ids_of("a")[0], 2}, {}), "a");
}

TEST(Detokenizer, HoldsBackPossibleStartsOfAStopString) {
  Detokenizer detokenizer(&demo(), {"ENDE"});
  std::vector<int32_t> ids = byte_ids("xENENDEy");
  std::vector<std::string> texts;
  for (int32_t id : ids) texts.push_back(detokenizer.push(id));
  EXPECT_EQ(texts, (std::vector<std::string>{"x", "", "", "EN", "", "", "", ""}));
  EXPECT_TRUE(detokenizer.stopped());
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReleasesAnIncompleteStopString) {
  bool stopped = true;
  EXPECT_EQ(stream(byte_ids("abEN"), {"ENDE"}, &stopped), "abEN");
  EXPECT_FALSE(stopped);
}

TEST(Detokenizer, FindsStopStringsWithinAndAcrossTokens) {
  for (const std::vector<int32_t>& ids :
       {ids_of("Hello, world! And more"), byte_ids("Hello, world! And more")}) {
    bool stopped = false;
    EXPECT_EQ(stream(ids, {"o, wor"}, &stopped), "Hell");
    EXPECT_TRUE(stopped);
  }
}

TEST(Detokenizer, FirstCompletedStopStringWins) {
  EXPECT_EQ(stream(byte_ids("xabcd"), {"abcd", "abc"}), "x");
  EXPECT_EQ(stream(byte_ids("xabcd"), {"abcd", "bc"}), "xa");
  EXPECT_EQ(stream(byte_ids("xabcd"), {"cd", "abcd"}), "x");
}

TEST(Detokenizer, StopsAtTheSamePlaceForAnySplitIntoTokens) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t i = 0; i < rng() % 30; ++i) text.push_back("ab "[rng() % 3]);
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + rng() % 3; ++i) {
      std::string stop;
      for (size_t j = 0; j < 1 + rng() % 4; ++j) stop.push_back("ab "[rng() % 3]);
      stops.push_back(stop);
    }
    // The expected text, computed the slow way: the shortest prefix of the text that holds a stop string.
    std::string expected = text;
    for (size_t end = 0; end <= text.size(); ++end) {
      std::string prefix = text.substr(0, end);
      size_t begin = std::string::npos;
      for (const std::string& stop : stops) begin = std::min(begin, prefix.find(stop));
      if (begin == std::string::npos) continue;
      expected = text.substr(0, begin);
      break;
    }
    EXPECT_EQ(stream(ids_of(text), stops), expected) << text;
    EXPECT_EQ(stream(byte_ids(text), stops), expected) << text;
  }
}

// Returns the begin or end of the character that contains text[at].
size_t char_begin(const std::string& text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}
size_t char_end(const std::string& text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}
int64_t chars_before(const std::string& text, size_t at) {
  int64_t count = 0;
  for (size_t i = 0; i < char_begin(text, at); ++i) count += char_begin(text, i) == i;
  return count;
}

// Checks that offsets arrive with the text that ends their tokens: not earlier, and not later.
void expect_offsets(const std::string& text, const std::vector<int32_t>& ids, const std::string& stop) {
  Detokenizer detokenizer(&demo(), {stop}, {.keeps_offsets = true});
  std::vector<size_t> begins{0};
  for (int32_t id : ids) begins.push_back(begins.back() + demo().token_bytes(id, true).size());
  std::vector<int64_t> told;
  const auto take = [&] {
    for (int64_t offset : detokenizer.take_offsets()) told.push_back(offset);
  };
  size_t returned = 0;
  for (size_t i = 0; i < ids.size() && !detokenizer.stopped(); ++i) {
    returned += detokenizer.push(ids[i]).size();
    if (i % 3 == 0) take();
    if (i % 3 != 0 || detokenizer.stopped()) continue;
    size_t count = 0;
    while (count <= i && char_end(text, begins[count + 1]) <= returned) ++count;
    ASSERT_EQ(told.size(), count) << text << " stop " << stop << " token " << i;
  }
  returned += detokenizer.finish().size();
  take();
  size_t count = 0;
  const auto is_told = [&](size_t i) {
    return char_end(text, begins[i + 1]) <= returned || char_begin(text, begins[i]) < returned;
  };
  while (count < ids.size() && is_told(count)) ++count;
  ASSERT_EQ(told.size(), count) << text << " stop " << stop;
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(told[i], chars_before(text, begins[i])) << text << i;
}

TEST(Detokenizer, OffsetsArriveWithTheTextOfTheirTokens) {
  std::mt19937_64 rng(12);
  const char* const pieces[] = {"a", "b", " ", "é", "宋", "👩", "ab", "\n"};
  for (int round = 0; round < 1000; ++round) {
    std::string text, stop;
    for (size_t i = 0; i < rng() % 30; ++i) text += pieces[rng() % 8];
    for (size_t i = 0; i < 1 + rng() % 3; ++i) stop += pieces[rng() % 8];
    expect_offsets(text, byte_ids(text), stop);
    expect_offsets(text, ids_of(text), stop);
  }
}

TEST(Detokenizer, OffsetsIncludeBrokenAndInvisibleTokens) {
  const int32_t special = *demo().token_to_id("<|im_start|>");
  std::vector<int32_t> ids = byte_ids("a\xe5\xae");  // the last character never ends
  ids.insert(ids.begin() + 1, special);
  ids.push_back(special);
  Detokenizer detokenizer(&demo(), {}, {.keeps_offsets = true});
  for (int32_t id : ids) detokenizer.push(id);
  detokenizer.finish();
  EXPECT_EQ(detokenizer.take_offsets(), (std::vector<int64_t>{0, 1, 1, 1, 1}));
  EXPECT_TRUE(detokenizer.take_offsets().empty());
}

std::vector<int64_t> offsets_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                std::string& text) {
  Detokenizer detokenizer(&tokenizer, {}, {.keeps_offsets = true});
  text.clear();
  for (int32_t id : ids) text += detokenizer.push(id);
  text += detokenizer.finish();
  return detokenizer.take_offsets();
}

// tokenizer.json's ByteFallback holds a run of <0xNN> back to its end, SentencePiece a character.
TEST(Detokenizer, OffsetsWithinARunOfByteTokensArrive) {
  std::string vocab = R"("a": 256, "▁b": 257)";
  for (int byte = 0; byte < 256; ++byte) {
    char name[32];
    std::snprintf(name, sizeof(name), R"(,"<0x%02X>": %d)", byte, byte);
    vocab += name;
  }
  const auto json = Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": [], "byte_fallback": true},
          "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
          "decoder": {"type": "Sequence", "decoders": [
              {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
              {"type": "ByteFallback"}, {"type": "Fuse"}]}})",
      "bytes.json");
  ASSERT_TRUE(json.ok()) << json.status();
  std::ifstream file(TROUPE_SOURCE_DIR "/tests/fixtures/tokenizers/bpe.model", std::ios::binary);
  const auto spm =
      Tokenizer::from_sentencepiece(std::string{std::istreambuf_iterator<char>(file), {}}, {}, "bpe.model");
  ASSERT_TRUE(spm.ok()) << spm.status();
  for (const Tokenizer* tokenizer : {json->get(), spm->get()}) {
    const auto id = [&](int byte) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", byte);
      return *tokenizer->token_to_id(name);
    };
    const int32_t a = *tokenizer->token_to_id("a");
    const auto with = [&](const std::string& bytes) {
      std::vector<int32_t> ids{a};
      for (const char byte : bytes) ids.push_back(id(static_cast<unsigned char>(byte)));
      ids.insert(ids.end(), {a, a});
      return ids;
    };
    std::string text;
    EXPECT_EQ(offsets_of(*tokenizer, with("é宋江"), text),
              (std::vector<int64_t>{0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5}));
    EXPECT_EQ(text, "aé宋江aa");
    EXPECT_EQ(offsets_of(*tokenizer, with("\xE5\xAE"), text), (std::vector<int64_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(text, "a\uFFFD\uFFFDaa");
    auto open = with("宋江");
    open.resize(open.size() - 2);
    EXPECT_EQ(offsets_of(*tokenizer, open, text), (std::vector<int64_t>{0, 1, 1, 1, 2, 2, 2}));
    EXPECT_EQ(text, "a宋江");
  }
}

TEST(Detokenizer, ShowsTheSpecialTokensThatAreAskedFor) {
  std::vector<int32_t> special;
  for (int32_t id = 0; id < demo().vocab_size(); ++id) {
    if (demo().is_special(id)) special.push_back(id);
  }
  ASSERT_GE(special.size(), 2u);
  std::vector<int32_t> ids = demo().encode("before ", /*add_special=*/false).value();
  ids.push_back(special[0]);
  ids.push_back(special[1]);
  const std::vector<int32_t> behind = demo().encode("behind", /*add_special=*/false).value();
  ids.insert(ids.end(), behind.begin(), behind.end());
  const auto text_of = [&ids](std::shared_ptr<const std::vector<int32_t>> shown) {
    Detokenizer detokenizer(&demo(), {}, {.shown_special = std::move(shown)});
    std::string text;
    for (const int32_t id : ids) text += detokenizer.push(id);
    return text + detokenizer.finish();
  };
  const auto shown = std::make_shared<const std::vector<int32_t>>(1, special[1]);
  const std::string name(demo().token_text(special[1]));
  EXPECT_EQ(text_of(nullptr), "before behind");
  EXPECT_EQ(text_of(std::make_shared<const std::vector<int32_t>>()), "before behind");
  EXPECT_EQ(text_of(shown), "before " + name + "behind");
}

}  // namespace detokenizer_test
}  // namespace troupe
