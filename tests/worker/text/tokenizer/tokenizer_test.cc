#include "worker/text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <functional>
#include <random>
#include <sstream>

#include "common/json/json.h"
#include "tests/cpu_time.h"
#include "worker/text/subcommands.h"
#include "worker/text/tokenizer/regex.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace tokenizer_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kDemoDir = TROUPE_SOURCE_DIR "/configs/demo-model";

const Tokenizer& demo() {
  static const auto tokenizer = Tokenizer::load(kDemoDir);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return **tokenizer;
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

// A byte-level BPE of letters a–d, joined to "ab", "cd", "abcd" and "bc".
bj::object small_file() {
  return parse_json(R"({
    "added_tokens": [{"id": 20, "content": "<s>", "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "cd": 5, "abcd": 6,
                                         "bc": 7, "Ġ": 8},
              "merges": ["a b", ["c", "d"], "ab cd", "b c"]}})")
      ->get_object();
}

StatusOr<std::unique_ptr<Tokenizer>> load_changed(const std::function<void(bj::object&)>& change) {
  bj::object file = small_file();
  change(file);
  return Tokenizer::from_json(bj::serialize(file), "tokenizer.json");
}

std::string error_of(const std::function<void(bj::object&)>& change) {
  auto tokenizer = load_changed(change);
  return tokenizer.ok() ? "no error" : std::string(tokenizer.status().message());
}

std::string random_text(std::mt19937_64& rng) {
  std::string text;
  size_t count = rng() % 40;
  for (size_t i = 0; i < count; ++i) {
    char32_t c = rng() % 3 == 0 ? rng() % 0x110000 : rng() % 3 == 0 ? 0x4E00 + rng() % 0x5000 : rng() % 0x80;
    if (c >= 0xD800 && c < 0xE000) c = ' ';
    append_utf8(text, c);
  }
  return text;
}

TEST(Tokenizer, EncodesTheDemoModelsTextLikeItsTrainer) {
  EXPECT_THAT(encode(demo(), "Hello, world! 宋江"), ElementsAre(2588, 14, 730, 347, 3, 223, 1586, 482));
  EXPECT_TRUE(encode(demo(), "").empty());
  EXPECT_EQ(demo().vocab_size(), 4096);
}

TEST(Tokenizer, SplitsSpecialStringsOutOfTheText) {
  EXPECT_THAT(encode(demo(), "<|im_start|><|im_end|>"), ElementsAre(1, 2));
  EXPECT_EQ(encode(demo(), "x<|im_end|>").back(), 2);
  EXPECT_TRUE(demo().is_special(2));
  EXPECT_FALSE(demo().is_special(3));
  EXPECT_EQ(demo().decode({1, 2}, false), "<|im_start|><|im_end|>");
  EXPECT_EQ(demo().decode({1, 2}, true), "");
  EXPECT_EQ(demo().token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(demo().token_to_id("no such token"), std::nullopt);
}

TEST(Tokenizer, DecodesEncodedText) {
  std::mt19937_64 rng(17);
  for (int i = 0; i < 3000; ++i) {
    std::string text = random_text(rng);
    EXPECT_EQ(demo().decode(encode(demo(), text), false), text);
  }
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(demo().encode("a\xFF", false).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(demo().encode("\xED\xA0\x80", false).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Tokenizer, ReturnsNothingForUnknownIds) {
  EXPECT_EQ(demo().token_bytes(-1, false), "");
  EXPECT_EQ(demo().token_bytes(4096, false), "");
  EXPECT_EQ(demo().decode({-5, 1 << 30}, false), "");
}

TEST(Tokenizer, JoinsLowestRankFirstAndLeftmost) {
  auto tokenizer = load_changed([](bj::object&) {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(encode(**tokenizer, "abcd"), ElementsAre(6));
  EXPECT_THAT(encode(**tokenizer, "bcd"), ElementsAre(1, 5));
  EXPECT_THAT(encode(**tokenizer, "bcbc"), ElementsAre(7, 7));
  EXPECT_THAT(encode(**tokenizer, "a<s>b c"), ElementsAre(0, 20, 1, 8, 2));
  // A byte missing from the vocabulary is dropped, as in the original.
  EXPECT_THAT(encode(**tokenizer, "a?b"), ElementsAre(0, 1));
}

TEST(Tokenizer, JoinsLongPiecesLikeShortOnes) {
  auto tokenizer =
      load_changed([](bj::object& file) { file["pre_tokenizer"].as_object()["use_regex"] = false; });
  ASSERT_TRUE(tokenizer.ok());
  std::mt19937_64 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = 0; i < 30 + rng() % 100; ++i) text.push_back(static_cast<char>('a' + rng() % 4));
    // No merge crosses "da", so a cut there must not change anything.
    std::vector<int32_t> pieces;
    size_t begin = 0;
    for (size_t i = 1; i <= text.size(); ++i) {
      if (i < text.size() && !(text[i - 1] == 'd' && text[i] == 'a')) continue;
      for (int32_t id : encode(**tokenizer, std::string_view(text).substr(begin, i - begin)))
        pieces.push_back(id);
      begin = i;
    }
    EXPECT_EQ(encode(**tokenizer, text), pieces) << text;
  }
}

TEST(Tokenizer, EncodesAMegabyteWithoutASpaceInTime) {
  const double started = cpu_seconds();
  for (char c : {'a', ' ', '1', '\n'}) EXPECT_FALSE(encode(demo(), std::string(1 << 20, c)).empty());
  // Well under a second in release; quadratic time would be hours.
  EXPECT_LT(cpu_seconds() - started, 60.0);
}

TEST(Tokenizer, AddsIdsOfThePostProcessor) {
  auto tokenizer = load_changed([](bj::object& file) {
    file["post_processor"] = *parse_json(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}})");
  });
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->encode("ab", true), ElementsAre(20, 4));
  EXPECT_THAT(*(*tokenizer)->encode("ab", false), ElementsAre(4));
}

TEST(Tokenizer, NamesUnsupportedComponents) {
  auto with = [](const char* key, const char* json) {
    return error_of([=](bj::object& file) { file[key] = *parse_json(json); });
  };
  EXPECT_EQ(with("pre_tokenizer", R"({"type": "UnicodeScripts"})"),
            "tokenizer.json: pre_tokenizer: type \"UnicodeScripts\" is not supported (supported: ByteLevel, "
            "Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit)");
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Bert"}]})"),
              HasSubstr("pre_tokenizer.pretokenizers[0]: type \"Bert\""));
  EXPECT_THAT(with("normalizer",
                   R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]})"),
              HasSubstr("normalizer.normalizers[1]: type \"Precompiled\""));
  EXPECT_THAT(with("normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
              HasSubstr("normalizer.pattern.String: empty"));
  EXPECT_THAT(with("decoder", R"({"type": "WordPiece"})"), HasSubstr("decoder: type \"WordPiece\""));
  EXPECT_THAT(
      with("decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})"),
      HasSubstr("decoder.decoders[1]: not supported behind a decoder that joins all tokens"));
  EXPECT_THAT(with("decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})"),
              HasSubstr("decoder.content: expected one character"));
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false,
                                        "prepend_scheme": "always"})"),
              HasSubstr("pre_tokenizer.prepend_scheme: \"always\", but \"add_prefix_space\": false"));
  EXPECT_THAT(with("post_processor", R"({"type": "Roberta"})"),
              HasSubstr("post_processor: type \"Roberta\""));
  EXPECT_THAT(with("model", R"({"type": "Unigram"})"), HasSubstr("model: type \"Unigram\""));
  EXPECT_THAT(
      with("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
      HasSubstr("pre_tokenizer.pattern: regex \"(\": "));
  EXPECT_THAT(with("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Lost"})"),
              HasSubstr("unknown behavior \"Lost\""));
}

TEST(Tokenizer, NamesInvalidItems) {
  auto model_error = [](const char* key, const char* json) {
    return error_of([=](bj::object& file) { file["model"].as_object()[key] = *parse_json(json); });
  };
  EXPECT_THAT(model_error("vocab", R"({"a": 0, "b": 0})"),
              HasSubstr("model.vocab[\"b\"]: id 0 is that of \"a\" already"));
  EXPECT_THAT(model_error("vocab", R"({"a": -1})"), HasSubstr("model.vocab[\"a\"]: expected a token id"));
  EXPECT_THAT(model_error("vocab", R"({"a": 4000000000})"), HasSubstr("expected a token id"));
  EXPECT_THAT(model_error("vocab", R"({"a": "0"})"), HasSubstr("found a string"));
  EXPECT_THAT(model_error("merges", R"(["a b", "a x"])"),
              HasSubstr("model.merges[1]: the right part \"x\" is not"));
  EXPECT_THAT(model_error("merges", R"(["a c"])"), HasSubstr("model.merges[0]: the result \"ac\" is not"));
  EXPECT_THAT(model_error("merges", R"(["a  b"])"), HasSubstr("model.merges[0]: expected"));
  EXPECT_THAT(model_error("merges", R"([["a"]])"), HasSubstr("model.merges[0]: expected"));
  EXPECT_THAT(model_error("dropout", "0.1"), HasSubstr("model.dropout: only null"));
  EXPECT_THAT(model_error("byte_fallback", "1"), HasSubstr("model.byte_fallback: expected true or false"));
  EXPECT_THAT(model_error("end_of_word_suffix", R"("</w>")"),
              HasSubstr("model.end_of_word_suffix: only null"));
  EXPECT_THAT(model_error("unk_token", R"("<unk>")"), HasSubstr("model.unk_token: \"<unk>\" is not"));
  auto added_error = [](const char* json) {
    return error_of([=](bj::object& file) { file["added_tokens"] = *parse_json(json); });
  };
  EXPECT_THAT(added_error(R"([{"id": 3, "content": "<x>"}])"), HasSubstr("id 3 is that of \"d\" already"));
  EXPECT_THAT(added_error(R"([{"id": 30, "content": "ab"}])"), HasSubstr("id 30, but model.vocab says 4"));
  EXPECT_THAT(added_error(R"([{"id": 30, "content": "x"}, {"id": 31, "content": "x"}])"),
              HasSubstr("listed twice"));
}

TEST(Tokenizer, LoadErrorsNameTheFile) {
  EXPECT_THAT(std::string(Tokenizer::load("/nonexistent").status().message()),
              AllOf(HasSubstr("/nonexistent/tokenizer.json"), HasSubstr("no tokenizer.model beside it")));
  EXPECT_THAT(std::string(Tokenizer::from_json("[]", "t.json").status().message()), HasSubstr("t.json"));
}

TEST(Regex, ExpandsClassesToTheOriginalsMeaning) {
  EXPECT_EQ(*pcre2_pattern(R"(a\p{Zs}[^\r\n])"), R"(a\p{Zs}[^\r\n])");
  EXPECT_EQ(*pcre2_pattern(R"(\p{Han})"), R"(\p{sc:Han})");
  auto space = Regex::compile(R"(\s)");
  ASSERT_TRUE(space.ok()) << space.status();
  Regex::Matcher matcher;
  int matches = 0;
  ASSERT_TRUE(space->for_each_match("\u180e\u3000\u00a0\u200b", matcher, [&](Span) { ++matches; }).ok());
  EXPECT_EQ(matches, 2);
}

TEST(Regex, MatchesLettersAddedByNewerUnicode) {
  Regex::Matcher matcher;
  for (const char* pattern : {R"(\p{L})", R"([\p{Lo}])", R"(\w)", R"(\P{N})", R"([^\p{N}\s])"}) {
    int matches = 0;
    auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    // U+31350 came with Unicode 15.0, U+2EBF0 with 15.1.
    ASSERT_TRUE(regex->for_each_match("\U00031350\U0002EBF0", matcher, [&](Span) { ++matches; }).ok());
    EXPECT_EQ(matches, 2) << pattern;
  }
}

TEST(Regex, RefusesPatternsWithAnotherMeaningInPcre2) {
  for (const char* pattern :
       {"a{1,3}+", "[a&&b]", "[a[b]]", R"(\h)", R"(\bx)", "(?m:.)", "(*UTF)", "(?<n>a)", "a{,3}"}) {
    EXPECT_FALSE(Regex::compile(pattern).ok()) << pattern;
  }
  EXPECT_THAT(std::string(Regex::compile("\\h").status().message()),
              HasSubstr("the escape \\h is not supported; \\s \\S \\w"));
  for (const char* pattern :
       {"a{1,3}", "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+", "\\s+(?!\\S)", "[\\S]+"}) {
    EXPECT_TRUE(Regex::compile(pattern).ok()) << pattern << Regex::compile(pattern).status();
  }
}

TEST(Regex, GivesUpOnRunawayPatterns) {
  auto regex = Regex::compile("(a+)+[bc]");
  ASSERT_TRUE(regex.ok());
  Regex::Matcher matcher;
  Status status = regex->for_each_match(std::string(60, 'a'), matcher, [](Span) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(TokenizeCommand, AnswersEachLineWithALine) {
  std::istringstream in("\"Hello, world! 宋江\"\n\"\"\n");
  std::ostringstream out, err;
  EXPECT_EQ(tokenize_command({"--model", kDemoDir}, in, out, err), 0) << err.str();
  EXPECT_EQ(out.str(), "[2588,14,730,347,3,223,1586,482]\n[]\n");
  std::istringstream ids("[2588,14]\n");
  std::ostringstream text;
  EXPECT_EQ(tokenize_command({"--model", kDemoDir, "--decode"}, ids, text, err), 0);
  EXPECT_EQ(text.str(), "\"Hello,\"\n");
}

TEST(TokenizeCommand, NamesTheWrongLineOrArgument) {
  std::istringstream in("\"ok\"\n{}\n");
  std::ostringstream out, err;
  EXPECT_EQ(tokenize_command({"--model", kDemoDir}, in, out, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("line 2: expected a JSON string"));
  std::istringstream ids("[2588]\n[1,4096]\n");
  EXPECT_EQ(tokenize_command({"--model", kDemoDir, "--decode"}, ids, out, err), 1);
  EXPECT_THAT(err.str(), HasSubstr("line 2: [1]: token id 4096 is outside the vocabulary [0, 4096)"));
  EXPECT_EQ(tokenize_command({"--modle", kDemoDir}, in, out, err), 2);
  EXPECT_EQ(tokenize_command({}, in, out, err), 2);
}

}  // namespace tokenizer_test
}  // namespace troupe
