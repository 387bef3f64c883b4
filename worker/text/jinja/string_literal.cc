#include "worker/text/jinja/string_literal.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/value.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

class Unescaper {
 public:
  Unescaper(std::string_view literal, int line) : literal_(literal), line_(line) {}

  std::string run() {
    while (pos_ < literal_.size()) {
      if (literal_[pos_] != '\\' || pos_ + 1 == literal_.size()) {
        out_.push_back(literal_[pos_++]);
      } else {
        escape(literal_[pos_ + 1]);
      }
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    constexpr std::string_view kNames = "ntrbfav\\'\"";
    constexpr std::string_view kMeanings = "\n\t\r\b\f\a\v\\'\"";
    size_t at = kNames.find(c);
    if (at != std::string_view::npos) {
      out_.push_back(kMeanings[at]);
      pos_ += 2;
    } else if (c == '\n') {
      pos_ += 2;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      number(pos_ + 2, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      size_t size = 1;
      while (size < 3 && pos_ + 1 + size < literal_.size() && literal_[pos_ + 1 + size] >= '0' &&
             literal_[pos_ + 1 + size] <= '7') {
        ++size;
      }
      number(pos_ + 1, size, 8);
    } else {
      out_.push_back('\\');
      ++pos_;
    }
  }

  void number(size_t begin, size_t size, int base) {
    std::string_view digits = literal_.substr(std::min(begin, literal_.size()), size);
    uint32_t value = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    bool complete = digits.size() == size && error == std::errc() && end == digits.data() + size;
    if (!complete || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      throw JinjaError(absl::StrCat("a string's escape '", std::string(literal_.substr(pos_, 2 + size)),
                                    "' is no character"),
                       line_);
    }
    append_utf8(out_, value);
    pos_ = begin + size;
  }

  std::string_view literal_;
  int line_;
  size_t pos_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape_string(std::string_view literal, int line) {
  return Unescaper(literal, line).run();
}

}  // namespace troupe::jinja
