// Oniguruma → PCRE2, the differences that published pre-tokeniser patterns can meet:
// - \s: PCRE2 with UCP counts U+180E as a space, Oniguruma does not; \w differs at thousands of code points
//   (PCRE2: letters, numbers and "_"). Both are spelled out, inside and outside of classes.
// - {n,m}+ is possessive in PCRE2 and a repeated group in Oniguruma; [a[b]], [a&&b] are set operations there
//   and literals in PCRE2; \h is a hex digit there and a blank in PCRE2. No file has these: refused.

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/text/tokenizer/regex.h"
#include "worker/text/unicode_additions.h"

namespace troupe {
namespace {

constexpr std::string_view kSpace = R"(\x{9}-\x{d}\x{20}\x{85}\p{Z})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// The six Latin-1 numbers (superscripts and fractions) are an oddity of Oniguruma's table, which has
// no other \p{No}.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
// Scripts by name: PCRE2 reads \p{Han} as Script_Extensions, Oniguruma as Script.
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian",  "Bengali", "Bopomofo", "Cyrillic", "Devanagari", "Georgian", "Greek",
    "Gujarati", "Han",       "Hangul",  "Hebrew",   "Hiragana", "Katakana",   "Khmer",    "Lao",
    "Latin",    "Mongolian", "Myanmar", "Tamil",    "Telugu",   "Thai",       "Tibetan"};

// Returns the additions to a general category ("L", "Lu"), as the inside of a class.
std::string additions(std::string_view category) {
  std::string ranges;
  for (const NewCharacters& added : kNewCharacters) {
    if (added.category.substr(0, category.size()) != category) continue;
    absl::StrAppend(&ranges, "\\x{", absl::Hex(added.first), "}-\\x{", absl::Hex(added.last), "}");
  }
  return ranges;
}

std::string word_class() {
  return absl::StrCat(to_absl(kWord), additions("L"), additions("M"), additions("Nd"));
}

Status refuse(std::string_view pattern, size_t pos, std::string_view why) {
  return invalid_argument(absl::StrCat("regex \"", to_absl(pattern), "\", byte ", pos, ": ", to_absl(why)));
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  StatusOr<std::string> run() {
    while (pos_ < pattern_.size()) {
      Status status = step();
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  char at(size_t pos) const { return pos < pattern_.size() ? pattern_[pos] : '\0'; }

  Status step() {
    char c = pattern_[pos_];
    if (c == '\\') return escape();
    if (class_begin_.has_value()) return in_class(c);
    if (c == '[') {
      class_begin_ = pos_;
      copy(1);
      if (at(pos_) == '^') copy(1);
      if (at(pos_) == ']')
        return refuse(pattern_, pos_, "a class that begins with ']' must write it as '\\]'");
      return {};
    }
    if (c == '{') return interval();
    if (c == '(') return group();
    copy(1);
    return {};
  }

  // Accepts (…), (?:…), (?i:…), look-around and atomic groups. Other flags mean something else in Oniguruma
  // (Ruby's m is PCRE2's s), and names, recursion and (*VERBS) do not occur in pre-tokenisers.
  Status group() {
    std::string_view rest = pattern_.substr(pos_);
    for (std::string_view known : {"(?:", "(?i:", "(?i)", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (rest.substr(0, known.size()) == known) {
        copy(known.size());
        return {};
      }
    }
    if (at(pos_ + 1) == '?' || at(pos_ + 1) == '*') {
      return refuse(pattern_, pos_,
                    "of the groups that begin with '(?' only (?: (?i: (?= (?! (?<= (?<! (?> are supported");
    }
    copy(1);
    return {};
  }

  Status in_class(char c) {
    if (c == ']') class_begin_.reset();
    if (c == '[') {
      if (at(pos_ + 1) != ':')
        return refuse(pattern_, pos_, "nested classes are not supported; write '\\[' for the sign");
      return refuse(pattern_, pos_, "POSIX classes are not supported; write \\p{…}");
    }
    if (c == '&' && at(pos_ + 1) == '&')
      return refuse(pattern_, pos_, "class intersection (&&) is not supported");
    copy(1);
    return {};
  }

  Status interval() {
    size_t end = pattern_.find_first_not_of("0123456789,", pos_ + 1);
    if (end == std::string_view::npos || pattern_[end] != '}' || end == pos_ + 1) {
      return refuse(pattern_, pos_, "'{' outside of a repeat count must be written '\\{'");
    }
    if (at(end + 1) == '+') return refuse(pattern_, pos_, "a repeat count followed by '+' is not supported");
    if (at(pos_ + 1) == ',') return refuse(pattern_, pos_, "a repeat count needs its lower bound: {0,n}");
    copy(end + 1 - pos_);
    return {};
  }

  Status escape() {
    char c = at(pos_ + 1);
    switch (c) {
      case 's':
        return spell(kSpace);
      case 'w':
        return spell(word_class());
      case 'd':
        return spell(R"(\p{Nd})" + additions("Nd"));
      case 'D':
        if (class_begin_.has_value()) return spell(R"(\P{Nd})");
        out_ += absl::StrCat(R"([^\p{Nd})", additions("Nd"), "]");
        pos_ += 2;
        return {};
      case 'S':
        return spell(kNotSpace);
      case 'W':
        if (class_begin_.has_value()) return refuse(pattern_, pos_, "\\W inside of a class is not supported");
        out_ += absl::StrCat("[^", word_class(), "]");
        pos_ += 2;
        return {};
      case 'p':
      case 'P':
        return property();
      case '\0':
        return refuse(pattern_, pos_, "ends in a backslash");
      default:
        return other_escape(c);
    }
  }

  Status property() {
    size_t end = pattern_.find('}', pos_);
    if (at(pos_ + 2) != '{' || end == std::string_view::npos) {
      return refuse(pattern_, pos_, "expected \\p{Property}");
    }
    std::string_view name = pattern_.substr(pos_ + 3, end - pos_ - 3);
    bool negated = !name.empty() && name.front() == '^';
    if (negated) name.remove_prefix(1);
    bool is_script = std::find(std::begin(kScripts), std::end(kScripts), name) != std::end(kScripts);
    if (name.size() > 2 && name != "Alphabetic" && !is_script) {
      return refuse(pattern_, pos_, absl::StrCat("the property ", to_absl(name), " is not supported"));
    }
    negated = negated != (at(pos_ + 1) == 'P');
    std::string known = absl::StrCat("p{", is_script ? "sc:" : "", to_absl(name), "}");
    std::string more = name.size() <= 2 ? additions(name) : std::string();
    if (more.empty() || (negated && class_begin_.has_value())) {
      // A complement within a class cannot be narrowed: additions stay unknown there.
      if (negated) known[0] = 'P';
      absl::StrAppend(&out_, "\\", known);
    } else if (class_begin_.has_value()) {
      absl::StrAppend(&out_, "\\", known, more);
    } else {
      absl::StrAppend(&out_, negated ? "[^\\" : "[\\", known, more, "]");
    }
    pos_ = end + 1;
    return {};
  }

  Status other_escape(char c) {
    constexpr std::string_view kSameInBoth = "rntfvx";
    constexpr const char* kSupported =
        R"(\s \S \w \W \d \D \p{…} \P{…} \r \n \t \f \v \x, \A and \z outside of a class, and signs)";
    bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    bool word_boundary = (c == 'b' || c == 'B') && !class_begin_.has_value();
    if (word_boundary) return refuse(pattern_, pos_, "\\b is not supported: write the look-around in full");
    bool anchor = (c == 'A' || c == 'z') && !class_begin_.has_value();
    if (letter_or_digit && !anchor && kSameInBoth.find(c) == std::string_view::npos) {
      return refuse(
          pattern_, pos_,
          absl::StrCat("the escape \\", std::string(1, c), " is not supported; ", kSupported, " are"));
    }
    if (c == 'v') return spell(R"(\x{b})");
    copy(2);
    return {};
  }

  // Emits the inside of a class: unchanged within a class, in brackets outside of one.
  Status spell(std::string_view inside) {
    if (class_begin_.has_value()) {
      out_ += inside;
    } else {
      out_ += absl::StrCat("[", to_absl(inside), "]");
    }
    pos_ += 2;
    return {};
  }

  void copy(size_t count) {
    out_ += pattern_.substr(pos_, count);
    pos_ += count;
  }

  std::string_view pattern_;
  size_t pos_ = 0;
  std::optional<size_t> class_begin_;
  std::string out_;
};

}  // namespace

StatusOr<std::string> pcre2_pattern(std::string_view oniguruma_pattern) {
  return Translator(oniguruma_pattern).run();
}

}  // namespace troupe
