#pragma once

// Template source → tokens, with Jinja2's white space rules under Hugging Face's settings: trim_blocks (drops
// the newline after a block tag or comment), lstrip_blocks (drops blanks before one at the start of a line),
// '-' strips, '+' keeps.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja {

enum class TokenType : uint8_t {
  kData,  // template text; `text` is the output
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

// Names a token in messages: "'endfor'", "end of template".
std::string describe(const Token& token);

}  // namespace troupe::jinja
