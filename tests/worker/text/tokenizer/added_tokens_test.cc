// Added tokens in texts made of them, of parts of them, and of white space, against the rules read out
// plainly.

#include "worker/text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace troupe {
namespace added_tokens_test {

bool is_blank(char c) {
  return c == ' ' || c == '\n';
}

struct Found {
  int32_t id;
  std::string before;  // text since the token before it
  bool operator==(const Found&) const = default;
};

// The longest token at the leftmost place; the white space that flags take is looked for anew each time.
std::vector<Found> plainly_found(const std::vector<AddedToken>& tokens, const std::string& text) {
  std::vector<Found> found;
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const AddedToken* best = nullptr;
    for (const AddedToken& token : tokens) {
      if (text.compare(pos, token.content.size(), token.content) != 0) continue;
      if (best == nullptr || token.content.size() > best->content.size()) best = &token;
    }
    if (best == nullptr) {
      ++pos;
      continue;
    }
    size_t begin = pos, end = pos + best->content.size();
    pos = end;
    const auto is_word = [&](size_t at) { return at < text.size() && std::isalnum(text[at]) != 0; };
    if (best->single_word && (is_word(end) || (begin > 0 && is_word(begin - 1)))) continue;
    while (best->lstrip && begin > 0 && is_blank(text[begin - 1])) --begin;
    if (best->lstrip) begin = std::max(begin, done);
    while (best->rstrip && end < text.size() && is_blank(text[end])) ++end;
    found.push_back({best->id, done < begin ? text.substr(done, begin - done) : ""});
    done = end;
  }
  found.push_back({-1, done < text.size() ? text.substr(done) : ""});
  return found;
}

std::vector<Found> found_by(const AddedTokenMatcher& matcher, const std::string& text) {
  std::vector<Found> found;
  std::string before;
  for (const TextPart& part : matcher.split(text)) {
    if (part.id < 0) {
      before += part.text;
    } else {
      found.push_back({part.id, std::exchange(before, {})});
    }
  }
  found.push_back({-1, before});
  return found;
}

TEST(AddedTokens, AreFoundWithTheWhiteSpaceThatTheirFlagsTake) {
  const std::string parts[] = {"<m>", "<", "m", ">", " ", "  ", "\n", "a", "<m"};
  std::mt19937_64 rng(11);
  for (int round = 0; round < 5000; ++round) {
    std::vector<AddedToken> tokens;
    for (const char* content : {"<m>", " ", "  ", "\n", " <m> ", "a", "<"}) {
      if (rng() % 2 == 0) continue;
      AddedToken& token = tokens.emplace_back();
      token.id = static_cast<int32_t>(tokens.size());
      token.content = content;
      token.single_word = rng() % 4 == 0;
      token.lstrip = rng() % 2 == 0;
      token.rstrip = rng() % 2 == 0;
    }
    std::vector<const AddedToken*> group;
    for (const AddedToken& token : tokens) group.push_back(&token);
    const AddedTokenMatcher matcher(group);
    std::string text;
    for (size_t i = rng() % 20; i > 0; --i) text += parts[rng() % std::size(parts)];
    EXPECT_EQ(found_by(matcher, text), plainly_found(tokens, text)) << text;
  }
}

// The same of tokens that are long, which are looked for in another way, and of texts that are nearly them.
TEST(AddedTokens, AreFoundHoweverLongTheyAre) {
  std::mt19937_64 rng(12);
  const auto letters = [&rng](size_t size) {
    std::string text;
    for (; size > 0; --size) text += rng() % 12 == 0 ? ' ' : rng() % 8 == 0 ? 'b' : 'a';
    return text;
  };
  size_t matched = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = letters(1 + rng() % 300);
    std::vector<AddedToken> tokens;
    for (size_t i = 1 + rng() % 6; i > 0; --i) {
      AddedToken& token = tokens.emplace_back();
      token.id = static_cast<int32_t>(tokens.size());
      const size_t begin = rng() % text.size();
      token.content = rng() % 3 == 0 ? letters(1 + rng() % 4) : text.substr(begin, 1 + rng() % 120);
      token.special = rng() % 2 == 0;
      token.lstrip = rng() % 3 == 0;
      token.rstrip = rng() % 3 == 0;
    }
    tokens.push_back(tokens.front());  // one that is never found
    tokens.back().id = 99;
    tokens.back().content = std::string(65, 'c');
    std::vector<const AddedToken*> group;
    for (const AddedToken& token : tokens) group.push_back(&token);
    const AddedTokenMatcher matcher(group);
    const auto found = found_by(matcher, text);
    EXPECT_EQ(found, plainly_found(tokens, text)) << text;
    matched += found.size();
    // No token spans a cut, whichever way it is looked for.
    const std::vector<size_t> cuts = matcher.cuts_of_special(text);
    size_t at = 0;
    for (const TextPart& part : matcher.split(text, cuts)) {
      const size_t end = at + part.text.size();
      const bool special = part.id > 0 && tokens[static_cast<size_t>(part.id) - 1].special;
      for (const size_t cut : cuts)
        EXPECT_FALSE(special && part.text.find_first_not_of(' ') != std::string_view::npos && cut > at &&
                     cut < end && tokens[static_cast<size_t>(part.id) - 1].content.size() > 1 &&
                     !tokens[static_cast<size_t>(part.id) - 1].lstrip &&
                     !tokens[static_cast<size_t>(part.id) - 1].rstrip)
            << text << " at " << cut;
      at = end;
    }
    bool begins = false;  // at its end one
    for (const AddedToken& token : tokens)
      for (size_t size = 1; size < std::min(token.content.size(), text.size() + 1); ++size)
        begins |= text.ends_with(token.content.substr(0, size));
    EXPECT_EQ(!cuts.empty() && cuts.back() == text.size(), begins) << text;
  }
  EXPECT_GT(matched, 4000u);
}

}  // namespace added_tokens_test
}  // namespace troupe
