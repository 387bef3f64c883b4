#pragma once

// Ids back to text: tokenizer.json's "decoder". The original's decoder turns a list of tokens into a text at
// once; ours is a row of stages that a stream of tokens flows through, and the whole decode is that stream
// from end to end, so that the two cannot differ. Immutable after load.

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

  // null: tokens are joined by spaces, as in the original. Errors name the component and what is supported.
  static StatusOr<Decoder> load(const bj::value& value, const std::string& where);

  // The bytes a token stands for in the middle of a text. REQUIRES: valid UTF-8.
  std::string token_bytes(std::string_view token) const;

  class Stream;

 private:
  Status collect(const bj::value& value, const std::string& where);
  Status add(DecodeStage stage, const std::string& where);

  std::vector<DecodeStage> stages_;
};

// One text's tokens. Not thread-safe; the decoder must outlive it.
class Decoder::Stream {
 public:
  // at_start: the first token begins a text (its space goes, where the file says so) rather than going on
  // with one.
  Stream(const Decoder* decoder, bool at_start);
  // Appends what is certain now: always whole characters. REQUIRES: valid UTF-8.
  void push(std::string_view token, std::string& out);
  bool holds_back() const;
  // Appends the rest.
  void finish(std::string& out);

 private:
  friend class Decoder;
  struct State {
    bool at_start = false;
    std::string held;     // bytes or characters that the next token decides upon
    size_t to_strip = 0;  // characters that a text may still lose at its beginning
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
