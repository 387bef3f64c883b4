#pragma once

// Template source → tokens, with Jinja2's white space rules as Hugging Face sets them: trim_blocks (the
// newline behind a block tag or comment goes), lstrip_blocks (blanks before one at the start of a line go),
// '-' strips,
// '+' keeps.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja {

enum class TokenType : uint8_t {
  kData,  // template text, `text` as it is to be written
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // `text` unescaped
  kInteger,
  kFloat,
  kOperator,  // `text` is the sign: "+", "==", "(" …
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;
};

// Throws JinjaError.
std::vector<Token> tokenize(std::string_view source);

// How a message names a token: "'endfor'", "end of template".
std::string describe(const Token& token);

}  // namespace troupe::jinja
