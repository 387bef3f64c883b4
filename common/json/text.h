#pragma once

// A JSON text on its way into a parser. simdjson reads up to kJsonPaddingBytes past a text's end (and ignores
// them), which saves an end check at every step. A text in a string with that much spare capacity is parsed
// in place; any other is copied first.

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr size_t kJsonPaddingBytes = 64;

// Refers to the text, which must outlive the parse.
class JsonText {
 public:
  JsonText(std::string_view text) : text_(text) {}
  JsonText(const char* text) : text_(text) {}
  JsonText(const std::string& text)
      : text_(text), is_padded_(text.capacity() - text.size() >= kJsonPaddingBytes) {}

  std::string_view text() const { return text_; }
  bool is_padded() const { return is_padded_; }

 private:
  std::string_view text_;
  bool is_padded_ = false;
};

}  // namespace troupe
