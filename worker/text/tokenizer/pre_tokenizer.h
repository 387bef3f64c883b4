#pragma once

// Stage 3 of encoding: cuts a text into pieces (roughly words), each of which the model encodes separately. A
// stage receives the pieces of the stages before it, and may cut or rewrite them further. Immutable after
// load; apply() is safe from many threads, each with its own Matcher.

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/text/tokenizer/regex.h"

namespace troupe {

namespace bj = boost::json;

// Texts stored one after the other in one buffer; none is empty.
class TextPieces {
 public:
  TextPieces() = default;
  // at_start: `text` begins at the beginning of the user's text. goes_on: it continues a text, and no space
  // is put before it.
  TextPieces(std::string_view text, bool at_start, bool goes_on = false)
      : at_start_(at_start), goes_on_(goes_on) {
    add(text);
  }
  void add(std::string_view piece) {
    if (piece.empty()) return;
    text_ += piece;
    ends_.push_back(text_.size());
  }
  size_t count() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  // Whether the first piece begins at the beginning of the user's text, or continues a text.
  bool at_start() const { return at_start_; }
  bool goes_on() const { return goes_on_; }
  // Takes both over from the pieces that these are made of.
  void set_begin(const TextPieces& source) {
    at_start_ = source.at_start_;
    goes_on_ = source.goes_on_;
  }

 private:
  bool at_start_ = false;
  bool goes_on_ = false;
  std::string text_;
  std::vector<size_t> ends_;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(TextPieces& pieces, Regex::Matcher& matcher) const = 0;
};

// Reads tokenizer.json's "pre_tokenizer" (null: one piece). Errors name the component and the supported ones.
StatusOr<std::unique_ptr<PreTokenizer>> load_pre_tokenizer(const bj::value& value, const std::string& where);

}  // namespace troupe
