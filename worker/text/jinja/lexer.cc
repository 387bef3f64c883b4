#include "worker/text/jinja/lexer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/string_literal.h"
#include "worker/text/jinja/text.h"
#include "worker/text/jinja/value.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

size_t skip_space(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    size_t next = pos;
    if (!is_python_space(next_code_point(text, next))) break;
    pos = next;
  }
  return pos;
}

// Converts all line ends to
//  and drops the last one.
std::string with_plain_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text.push_back(source[i] == '\r' ? '\n' : source[i]);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(with_plain_newlines(source)), source_(text_) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) {
      size_t tag = find_tag(pos_);
      if (tag == std::string_view::npos) {
        add(TokenType::kData, source_.substr(pos_));
        pos_ = source_.size();
        break;
      }
      read_tag(tag);
    }
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char at(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }

  [[noreturn]] void fail(const std::string& message) { throw JinjaError(message, line_); }

  size_t find_tag(size_t from) const {
    for (size_t at_brace = source_.find('{', from); at_brace != std::string_view::npos;
         at_brace = source_.find('{', at_brace + 1)) {
      char next = at(at_brace + 1);
      if (next == '%' || next == '{' || next == '#') return at_brace;
    }
    return std::string_view::npos;
  }

  // Moves on to `pos`, counting lines.
  void advance(size_t pos) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  void add(TokenType type, std::string_view text) {
    if (type == TokenType::kData && text.empty()) return;
    tokens_.push_back({type, std::string(text), line_});
  }

  // Returns the text before a tag at `tag`, stripped according to the tag's sign and the settings.
  std::string_view before_tag(size_t tag, char sign, bool is_variable) const {
    std::string_view data = source_.substr(pos_, tag - pos_);
    if (sign == '-') return strip(data, std::nullopt, StripSide::kRight);
    if (sign == '+' || is_variable) return data;
    size_t line_begin = data.rfind('\n') + 1;  // npos + 1 is 0
    if (line_begin == 0 && !line_starting_) return data;
    bool only_space = skip_space(data, line_begin) == data.size();
    return only_space ? data.substr(0, line_begin) : data;
  }

  // Returns the position after a tag's end: "-%}" skips all white space, "%}" one newline, "+%}" nothing.
  size_t after_tag(size_t end, char sign) const {
    if (sign == '-') return skip_space(source_, end);
    return sign != '+' && at(end) == '\n' ? end + 1 : end;
  }

  static bool is_sign(char c) { return c == '-' || c == '+'; }

  void read_tag(size_t tag) {
    char kind = at(tag + 1);
    char sign = is_sign(at(tag + 2)) ? at(tag + 2) : '\0';
    size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    add(TokenType::kData, before_tag(tag, sign, kind == '{'));
    advance(inside);
    if (kind == '#') {
      read_comment();
    } else if (kind == '%' && is_raw_begin()) {
      read_raw();
    } else {
      read_code(kind == '{');
    }
    line_starting_ = pos_ > 0 && source_[pos_ - 1] == '\n';
  }

  void read_comment() {
    size_t end = source_.find("#}", pos_);
    if (end == std::string_view::npos) fail("a comment is not closed: '#}' is missing");
    char sign = end > pos_ && is_sign(source_[end - 1]) ? source_[end - 1] : '\0';
    advance(after_tag(end + 2, sign));
  }

  // Matches "raw" directly followed by the block's end.
  bool is_raw_begin() {
    size_t name = skip_space(source_, pos_);
    if (source_.substr(name, 3) != "raw") return false;
    size_t end = skip_space(source_, name + 3);
    if (source_.substr(end, 3) == "-%}") {
      raw_body_ = skip_space(source_, end + 3);
      return true;
    }
    raw_body_ = end + 2;
    return source_.substr(end, 2) == "%}";
  }

  void read_raw() {
    advance(raw_body_);
    line_starting_ = pos_ > 0 && source_[pos_ - 1] == '\n';
    for (size_t tag = source_.find("{%", pos_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      char sign = is_sign(at(tag + 2)) ? at(tag + 2) : '\0';
      size_t name = skip_space(source_, tag + 2 + (sign != '\0' ? 1 : 0));
      if (source_.substr(name, 6) != "endraw") continue;
      size_t end = skip_space(source_, name + 6);
      char end_sign = is_sign(at(end)) ? at(end) : '\0';
      if (end_sign != '\0') ++end;
      if (source_.substr(end, 2) != "%}") continue;
      add(TokenType::kData, before_tag(tag, sign, false));
      advance(after_tag(end + 2, end_sign));
      return;
    }
    fail("a raw block is not closed: '{% endraw %}' is missing");
  }

  void read_code(bool is_variable) {
    std::string_view closing = is_variable ? "}}" : "%}";
    add(is_variable ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    std::string open;  // open brackets; within them "}}" ends a dict, not the tag
    for (;;) {
      advance(skip_space(source_, pos_));
      if (pos_ >= source_.size())
        fail(absl::StrCat("a tag is not closed: '", to_absl(closing), "' is missing"));
      char sign = at(pos_) == '-' || (at(pos_) == '+' && !is_variable) ? at(pos_) : '\0';
      size_t end = pos_ + (sign != '\0' ? 1 : 0);
      if (open.empty() && source_.substr(end, 2) == closing) {
        add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
        end += 2;
        advance(is_variable ? (sign == '-' ? skip_space(source_, end) : end) : after_tag(end, sign));
        return;
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    char c = source_[pos_];
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) return read_name();
    if (c == '"' || c == '\'') return read_string();
    read_operator(open);
  }

  void read_name() {
    size_t end = pos_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenType::kName, source_.substr(pos_, end - pos_));
    advance(end);
  }

  size_t skip_digits(size_t pos) const {
    while (is_digit(at(pos)) || (at(pos) == '_' && is_digit(at(pos + 1)))) ++pos;
    return pos;
  }

  void read_number() {
    size_t end = skip_digits(pos_);
    bool is_float = false;
    // A number after a dot is an index ("a.0.1"), never a fraction.
    bool after_dot =
        !tokens_.empty() && tokens_.back().type == TokenType::kOperator && tokens_.back().text == ".";
    if (at(end) == '.' && is_digit(at(end + 1)) && !after_dot) {
      end = skip_digits(end + 1);
      is_float = true;
    }
    size_t exponent = end + 1 + (is_sign(at(end + 1)) ? 1 : 0);
    if ((at(end) == 'e' || at(end) == 'E') && is_digit(at(exponent)) && !after_dot) {
      end = skip_digits(exponent);
      is_float = true;
    }
    std::string digits(source_.substr(pos_, end - pos_));
    std::erase(digits, '_');
    if (!is_float && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != std::string::npos) {
      fail("a number must not begin with 0: " + digits);
    }
    if (is_name_start(at(end)))
      fail("a number runs into a name: " + std::string(source_.substr(pos_, end + 1 - pos_)));
    add(is_float ? TokenType::kFloat : TokenType::kInteger, digits);
    advance(end);
  }

  void read_string() {
    char quote = source_[pos_];
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    add(TokenType::kString, unescape_string(source_.substr(pos_ + 1, end - pos_ - 1), line_));
    advance(end + 1);
  }

  void read_operator(std::string& open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    std::string_view two = source_.substr(pos_, 2);
    size_t size = std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo) ? 2 : 1;
    char c = source_[pos_];
    if (size == 1 && kOne.find(c) == std::string_view::npos) {
      fail(absl::StrCat("unexpected character '", std::string(1, c), "'"));
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(absl::StrCat("unexpected '", std::string(1, c), "'"));
      if (open.back() != c)
        fail(absl::StrCat("unexpected '", std::string(1, c), "', expected '", std::string(1, open.back()),
                          "'"));
      open.pop_back();
    }
    add(TokenType::kOperator, source_.substr(pos_, size));
    advance(pos_ + size);
  }

  std::string text_;
  std::string_view source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  size_t raw_body_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kData:
      return "text";
    case TokenType::kVariableBegin:
      return "'{{'";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kString:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace troupe::jinja
