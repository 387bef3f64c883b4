#pragma once

// The tokens of a template as its parsers read them: one by one, with a look ahead. Not thread-safe.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/lexer.h"

namespace troupe::jinja {

class TokenStream {
 public:
  // The last token is kEnd; the stream does not go beyond it.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const;
  Token next();
  bool at_operator(std::string_view sign) const;
  bool at_name(std::string_view name) const;
  // Return false, and read nothing, where another token is next.
  bool skip_operator(std::string_view sign);
  bool skip_name(std::string_view name);
  // Throw JinjaError, with the line, where another token is next. `what` describes the expected one.
  void expect_operator(std::string_view sign);
  void expect_name(std::string_view name);
  std::string expect_identifier(std::string_view what);
  void expect(TokenType type, std::string_view what);
  // Throws JinjaError with the line of the next token.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

}  // namespace troupe::jinja
