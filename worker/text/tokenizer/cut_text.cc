#include "worker/text/tokenizer/cut_text.h"

#include <algorithm>

namespace troupe {
namespace {

// Text has a U+FDD0 as mark and escape, and a U+FDD1 as mark and two escapes: what follows a mark that is a
// cut is never read as its escape.
constexpr std::string_view kMark = "\xEF\xB7\x90";    // U+FDD0
constexpr std::string_view kEscape = "\xEF\xB7\x91";  // U+FDD1
static_assert(kMark.size() == kEscape.size());

// The first of both.
size_t find_either(std::string_view text) {
  const std::string_view begin = kMark.substr(0, 2);
  size_t at = text.find(begin);
  while (at != std::string_view::npos && !text.substr(at).starts_with(kMark) &&
         !text.substr(at).starts_with(kEscape))
    at = text.find(begin, at + 1);
  return at;
}

void append_escaped(std::string_view text, std::string& out) {
  for (size_t at = find_either(text); at != std::string_view::npos; at = find_either(text)) {
    out.append(text.substr(0, at)).append(kMark).append(kEscape);
    if (text.substr(at).starts_with(kEscape)) out.append(kEscape);
    text.remove_prefix(at + kMark.size());
  }
  out.append(text);
}

}  // namespace

bool has_marks(std::string_view text) {
  return find_either(text) != std::string_view::npos;
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
    if (!marked.starts_with(kEscape)) {
      cut.cuts.push_back(cut.text.size());
      continue;
    }
    marked.remove_prefix(kEscape.size());
    const bool is_escape = marked.starts_with(kEscape);
    cut.text.append(is_escape ? kEscape : kMark);
    if (is_escape) marked.remove_prefix(kEscape.size());
  }
  cut.text.append(marked);
  return cut;
}

}  // namespace troupe
