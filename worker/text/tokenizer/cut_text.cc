#include "worker/text/tokenizer/cut_text.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kMark = "\xEF\xB7\x90";    // U+FDD0
constexpr std::string_view kEscape = "\xEF\xB7\x91";  // U+FDD1, after a U+FDD0 that is text

void append_escaped(std::string_view text, std::string& out) {
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark)) {
    out.append(text.substr(0, at + kMark.size())).append(kEscape);
    text.remove_prefix(at + kMark.size());
  }
  out.append(text);
}

}  // namespace

bool has_marks(std::string_view text) {
  return text.find(kMark) != std::string_view::npos;
}

std::string with_marks(std::string_view text, std::span<const size_t> cuts) {
  std::string marked;
  marked.reserve(text.size() + cuts.size() * kMark.size());
  size_t done = 0;
  for (const size_t cut : cuts) {
    append_escaped(text.substr(done, cut - done), marked);
    marked.append(kMark);
    done = cut;
  }
  append_escaped(text.substr(done), marked);
  return marked;
}

CutText without_marks(std::string_view marked) {
  CutText cut;
  cut.text.reserve(marked.size());
  for (size_t at = marked.find(kMark); at != std::string_view::npos; at = marked.find(kMark)) {
    cut.text.append(marked.substr(0, at));
    marked.remove_prefix(at + kMark.size());
    if (marked.starts_with(kEscape)) {
      cut.text.append(kMark);
      marked.remove_prefix(kEscape.size());
    } else {
      cut.cuts.push_back(cut.text.size());
    }
  }
  cut.text.append(marked);
  return cut;
}

}  // namespace troupe
