#pragma once

// Ids back to text: tokenizer.json's "decoder". The original turns a list of tokens into a text at once; here
// a stream of tokens flows through a row of stages, and a whole decode is that stream from beginning to end,
// so that the two cannot differ. Immutable after load.

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/text/tokenizer/regex.h"

namespace troupe {

namespace bj = boost::json;

struct DecodeStage;

class Decoder {
 public:
  Decoder();
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  // null: tokens are joined by spaces, as in the original. Errors name the component and the supported ones.
  static StatusOr<Decoder> load(const bj::value& value, const std::string& where);

  // Returns a token's bytes in the middle of a text. REQUIRES: valid UTF-8.
  std::string token_bytes(std::string_view token) const;

  class Stream;

 private:
  Status collect(const bj::value& value, const std::string& where);
  Status add(DecodeStage stage, const std::string& where);

  std::vector<DecodeStage> stages_;
};

// Decodes one text's tokens. Not thread-safe; the decoder must outlive it.
class Decoder::Stream {
 public:
  // at_start: the first token begins a text (and loses its space, if the file says so) instead
  // of continuing one.
  Stream(const Decoder* decoder, bool at_start);
  // Appends the text that is final: always whole characters. REQUIRES: valid UTF-8.
  void push(std::string_view token, std::string& out);
  bool holds_back() const;
  // Appends the rest.
  void finish(bool keeps_cut_character, std::string& out);

 private:
  friend class Decoder;
  struct State {
    bool at_start = false;
    std::string held;     // bytes or characters that depend on the next token
    size_t to_strip = 0;  // characters still to strip at the text's beginning
  };
  void feed(size_t index, std::string token, std::string& out);
  void feed_byte_fallback(size_t index, std::string token, std::string& out);
  void feed_strip(size_t index, std::string token, std::string& out);
  void release_bytes(size_t index, std::string& out);
  std::string replace(const DecodeStage& stage, std::string token);

  const Decoder* decoder_;
  std::vector<State> states_;
  std::unique_ptr<Regex::Matcher> matcher_;
};

}  // namespace troupe
