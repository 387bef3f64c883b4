#include "worker/text/jinja/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {

const Token& TokenStream::peek(size_t ahead) const {
  return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)];
}

Token TokenStream::next() {
  Token token = peek();
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool TokenStream::at_operator(std::string_view sign) const {
  return peek().type == TokenType::kOperator && peek().text == sign;
}

bool TokenStream::at_name(std::string_view name) const {
  return peek().type == TokenType::kName && peek().text == name;
}

bool TokenStream::skip_operator(std::string_view sign) {
  if (!at_operator(sign)) return false;
  next();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void TokenStream::expect_operator(std::string_view sign) {
  if (!skip_operator(sign)) fail(absl::StrCat("expected '", to_absl(sign), "', found ", describe(peek())));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(absl::StrCat("expected '", to_absl(name), "', found ", describe(peek())));
}

std::string TokenStream::expect_identifier(std::string_view what) {
  if (peek().type != TokenType::kName)
    fail(absl::StrCat("expected ", to_absl(what), ", found ", describe(peek())));
  return next().text;
}

void TokenStream::expect(TokenType type, std::string_view what) {
  if (peek().type != type) fail(absl::StrCat("expected ", to_absl(what), ", found ", describe(peek())));
  next();
}

void TokenStream::fail(const std::string& message) const {
  throw JinjaError(message, peek().line);
}

}  // namespace troupe::jinja
