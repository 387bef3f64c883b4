#include "worker/text/tokenizer/cut_text.h"

#include <algorithm>
#include <iterator>

namespace troupe {
namespace {

// Text has a U+FDD0 as mark and escape, a U+FDD1 as mark and two escapes, and a U+FDD3 as mark and three:
// what follows a mark that is a cut is never read as its escape.
constexpr std::string_view kMark = "\xEF\xB7\x90";    // U+FDD0
constexpr std::string_view kEscape = "\xEF\xB7\x91";  // U+FDD1
static_assert(kMark.size() == kEscape.size() && kMark.size() == kOwnMark.size());
// By the number of escapes behind their mark.
constexpr std::string_view kEscaped[] = {kMark, kEscape, kOwnMark};
constexpr size_t kEscapesMax = std::size(kEscaped);

// The first of `signs`, which begin alike.
size_t find_any(std::string_view text, std::span<const std::string_view> signs) {
  const auto begins = [&](size_t at) {
    return std::any_of(signs.begin(), signs.end(),
                       [&](std::string_view sign) { return text.substr(at).starts_with(sign); });
  };
  size_t at = text.find(kMark.substr(0, 2));
  while (at != std::string_view::npos && !begins(at)) at = text.find(kMark.substr(0, 2), at + 1);
  return at;
}

void append_escaped(std::string_view text, std::string& out) {
  for (size_t at = find_any(text, kEscaped); at != std::string_view::npos; at = find_any(text, kEscaped)) {
    out.append(text.substr(0, at)).append(kMark);
    text.remove_prefix(at);
    for (const std::string_view sign : kEscaped) {
      out.append(kEscape);
      if (text.starts_with(sign)) break;
    }
    text.remove_prefix(kMark.size());
  }
  out.append(text);
}

}  // namespace

bool has_marks(std::string_view text) {
  return find_any(text, kEscaped) != std::string_view::npos;
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

std::string with_own_marks(std::string_view text, std::span<const size_t> places) {
  std::string marked;
  marked.reserve(text.size() + places.size() * kOwnMark.size());
  size_t done = 0;
  for (const size_t place : places) {
    marked.append(text.substr(done, place - done)).append(kOwnMark);
    done = place;
  }
  marked.append(text.substr(done));
  return marked;
}

CutText without_marks(std::string_view marked) {
  constexpr std::string_view kMarks[] = {kMark, kOwnMark};
  CutText cut;
  cut.text.reserve(marked.size());
  for (size_t at = find_any(marked, kMarks); at != std::string_view::npos; at = find_any(marked, kMarks)) {
    cut.text.append(marked.substr(0, at));
    marked.remove_prefix(at);
    const bool is_own = marked.starts_with(kOwnMark);
    marked.remove_prefix(kMark.size());
    if (is_own) {
      cut.own.push_back(cut.text.size());
      continue;
    }
    size_t escapes = 0;
    for (; escapes < kEscapesMax && marked.starts_with(kEscape); ++escapes)
      marked.remove_prefix(kEscape.size());
    if (escapes == 0) {
      cut.cuts.push_back(cut.text.size());
    } else {
      cut.text.append(kEscaped[escapes - 1]);
    }
  }
  cut.text.append(marked);
  return cut;
}

}  // namespace troupe
