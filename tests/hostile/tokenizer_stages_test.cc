// Every stage of a tokenizer takes time in proportion to its text, whatever that is.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "common/json/json.h"
#include "tests/hostile/cpu_growth.h"
#include "worker/text/tokenizer/added_tokens.h"
#include "worker/text/tokenizer/bpe.h"
#include "worker/text/tokenizer/cut_text.h"
#include "worker/text/tokenizer/normalizer.h"
#include "worker/text/tokenizer/pre_tokenizer.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace tokenizer_stages_test {

bj::value json(std::string_view text) {
  auto value = parse_json(text);
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

// (Other tests look at what is made of a text.)
template <typename Result>
void expect_ok(const Result& result) {
  EXPECT_TRUE(result.ok());
}

TEST(HostileTexts, Normalizers) {
  constexpr const char* kNormalizers[] = {
      R"({"type": "NFC"})",
      R"({"type": "NFD"})",
      R"({"type": "NFKC"})",
      R"({"type": "NFKD"})",
      R"({"type": "Lowercase"})",
      R"({"type": "Strip", "strip_left": true, "strip_right": true})",
      R"({"type": "Strip", "strip_left": true, "strip_right": false})",
      R"({"type": "StripAccents"})",
      R"({"type": "Prepend", "prepend": "▁"})",
      R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})",
      R"({"type": "Replace", "pattern": {"String": "``"}, "content": "\""})",
      R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})",
      R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "})",
      R"({"type": "Replace", "pattern": {"Regex": "\\d+"}, "content": "#"})",
      R"({"type": "ByteLevel"})",
  };
  for (const char* source : kNormalizers) {
    const auto normalizer = Normalizer::load(json(source), "normalizer");
    ASSERT_TRUE(normalizer.ok()) << source << normalizer.status();
    Regex::Matcher matcher;
    expect_linear(source, hostile_texts(), [&](const std::string& text) {
      NormalizedText normalized{text};
      expect_ok(normalizer->apply(normalized, matcher));
    });
  }
}

std::string split_by(std::string_view regex, std::string_view behavior = "Isolated") {
  std::string pattern;
  append_json_string(pattern, regex);
  return R"({"type":"Split","behavior":")" + std::string(behavior) + R"(","pattern":{"Regex":)" + pattern +
         "}}";
}

std::string sequence(const std::vector<std::string>& stages) {
  std::string all;
  for (const std::string& stage : stages) all += (all.empty() ? "" : ",") + stage;
  return R"({"type":"Sequence","pretokenizers":[)" + all + "]}";
}

const std::string kBytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's, those above, those of older DeepSeek models, of Falcon, Gemma, Llama 2 and of word models.
TEST(HostileTexts, PreTokenizers) {
  const std::string sources[] = {
      R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})",
      split_by(kLlama3),
      sequence({split_by(kQwen2), kBytes}),
      sequence(
          {split_by(R"(\p{N}{1,3})"), split_by("[一-龥぀-ゟ゠-ヿ]+"), split_by(kDeepSeek3), kBytes}),
      split_by(kO200k, "Removed"),
      sequence({split_by(R"([\r\n])"), split_by(R"(\s?\p{L}+)"), split_by(R"(\s?\p{P}+)"),
                split_by("[一-龥ࠀ-一가-퟿]+"), R"({"type": "Digits", "individual_digits": true})",
                kBytes}),
      sequence({R"({"type": "Punctuation", "behavior": "Contiguous"})",
                R"({"type": "ByteLevel", "use_regex": true})",
                R"({"type": "Digits", "individual_digits": false})", split_by("[0-9][0-9][0-9]")}),
      R"({"type": "Split", "behavior": "MergedWithPrevious", "pattern": {"String": " "}})",
      R"({"type": "Split", "behavior": "MergedWithNext", "pattern": {"String": "▁"}})",
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})",
      R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})",
      R"({"type": "Whitespace"})",
      R"({"type": "WhitespaceSplit"})",
      R"({"type": "Punctuation", "behavior": "MergedWithPrevious"})",
  };
  for (const std::string& source : sources) {
    const auto pre_tokenizer = load_pre_tokenizer(json(source), "pre_tokenizer");
    ASSERT_TRUE(pre_tokenizer.ok()) << source << pre_tokenizer.status();
    Regex::Matcher matcher;
    expect_linear(source, hostile_texts(), [&](const std::string& text) {
      TextPieces pieces(text, /*at_start=*/true);
      expect_ok((*pre_tokenizer)->apply(pieces, matcher));
    });
  }
}

// A model in which runs of one character join to pieces of two, four, … of them: the most joins that a text
// can have.
bj::object doubling_model(const std::vector<std::string>& letters) {
  bj::object vocab;
  bj::array merges;
  const auto add = [&vocab](const std::string& token) {
    if (!vocab.contains(token)) vocab[token] = static_cast<int64_t>(vocab.size());
  };
  add("<unk>");
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    add(name);
  }
  for (const std::string& letter : letters) add(letter);
  for (const std::string& letter : letters) {
    std::string run = letter;
    for (int i = 0; i < 5; ++i) {
      merges.emplace_back(run + " " + run);
      run += run;
      add(run);
    }
  }
  for (const std::string& left : letters) {
    for (const std::string& right : letters) {
      if (left == right) continue;
      merges.emplace_back(left + " " + right);
      add(left + right);
    }
  }
  bj::object model;
  model["type"] = "BPE";
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  model["unk_token"] = "<unk>";
  return model;
}

TEST(HostileTexts, BytePairEncoding) {
  bj::object plain = doubling_model({"a", "b", "A", "1", "7", "\u0301", "▁", "!", "宋", "<", "\n"});
  bj::object bytes = plain, whole = plain;
  bytes["byte_fallback"] = true;
  bytes["fuse_unk"] = true;
  whole["ignore_merges"] = true;
  for (const bj::object& source : {plain, bytes, whole}) {
    const auto model = Bpe::load(source, "model");
    ASSERT_TRUE(model.ok()) << model.status();
    Bpe::Scratch scratch;
    expect_linear("BPE", hostile_texts(), [&](const std::string& text) {
      std::vector<int32_t> ids;
      expect_ok(model->encode(text, scratch, ids));
    });
  }
}

std::vector<AddedToken> with_flags(const std::vector<std::string>& contents, bool single_word, bool lstrip,
                                   bool rstrip) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) {
    AddedToken& token = tokens.emplace_back();
    token.id = static_cast<int32_t>(tokens.size());
    token.content = content;
    token.special = tokens.size() % 2 == 0;
    token.single_word = single_word;
    token.lstrip = lstrip;
    token.rstrip = rstrip;
  }
  return tokens;
}

// Special tokens and reserved ones by the hundred, runs of white space as GPT-NeoX and Gemma have them,
// masks, marks and letters, each with every flag.
TEST(HostileTexts, AddedTokens) {
  std::vector<std::string> reserved = {"<|im_start|>", "<|im_end|>", "<mask>"},
                           spaces = {"\n", "\t", "\u00a0"};
  for (int i = 0; i < 500; ++i) reserved.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
  for (size_t size = 1; size < 32; ++size) spaces.push_back(std::string(size, ' '));
  const std::vector<std::string> odd = {"a", "aaaaaaaaab", "\u0301", "<", "<|", "[[", "77", "宋", "\u200d"};
  const std::vector<std::string> endless = {std::string(20'000, 'a') + "b", std::string(5'000, ' ') + "\n",
                                            std::string(900, '<') + ">"};
  for (const auto& contents : {reserved, spaces, odd, endless}) {
    for (const int flags : {0, 2, 4, 7}) {
      const auto tokens = with_flags(contents, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0);
      std::vector<const AddedToken*> group;
      for (const AddedToken& token : tokens) group.push_back(&token);
      const AddedTokenMatcher matcher(group);
      const std::string name =
          "added tokens like " + contents.front().substr(0, 20) + ", flags " + std::to_string(flags);
      expect_linear(name, hostile_texts(), [&](const std::string& text) {
        const std::vector<size_t> cuts = matcher.cuts_of_special(text);
        EXPECT_FALSE(
            matcher.split(text, flags % 2 == 0 ? std::span(cuts) : std::span<const size_t>()).empty());
      });
    }
  }
}

TEST(HostileTexts, PlacesThatNoTokenSpans) {
  expect_linear("cuts", hostile_texts(), [](const std::string& text) {
    std::vector<size_t> cuts;
    for (size_t at = 0; at < text.size(); next_code_point(text, at)) cuts.push_back(at);
    EXPECT_EQ(without_marks(with_marks(text, cuts)).text, text);
  });
}

TEST(HostileTexts, BytesThatAreNoText) {
  expect_linear("take_valid_utf8", hostile_bytes(), [](const std::string& text) {
    std::string held, out;
    for (const char c : text) {
      held += c;
      take_valid_utf8(held, out, /*at_end=*/false);
    }
    std::string all = text;
    take_valid_utf8(all, out, /*at_end=*/true);
  });
}

}  // namespace tokenizer_stages_test
}  // namespace troupe
