#include "worker/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/core/work_limit.h"
#include "worker/text/unicode_corrections.h"

namespace troupe {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

template <size_t count>
bool contains(const std::array<CodePoints, count>& table, char32_t c) {
  auto it = std::lower_bound(table.begin(), table.end(), c,
                             [](const CodePoints& range, char32_t point) { return range.last < point; });
  return it != table.end() && it->first <= c;
}

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

utf8proc_propval_t combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// The code points that `text` decomposes into, canonically or, with UTF8PROC_COMPAT, by compatibility.
Status append_decomposed(std::vector<utf8proc_int32_t>& points, std::string_view text,
                         utf8proc_option_t options) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition, of U+FDFA, has 18
  for (size_t pos = 0; pos < text.size();) {
    TROUPE_RETURN_IF_ERROR(count_work(1));
    int bound_class = 0;  // of no use here, but written
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next_code_point(text, pos)), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &bound_class);
    if (count < 0 || static_cast<size_t>(count) > parts.size())
      return invalid_argument("Unicode normalisation failed: a character has no decomposition");
    points.insert(points.end(), parts.begin(), parts.begin() + count);
  }
  return {};
}

// The canonical ordering algorithm of Unicode 3.11: each run of combining marks is sorted by class, and marks
// of one class keep their order.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) > 0; };
  const auto is_before = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), is_mark);
    const auto end = std::find_if_not(begin, points.end(), is_mark);
    if (!std::is_sorted(begin, end, is_before)) std::stable_sort(begin, end, is_before);
    begin = end;
  }
}

// Appends the normal form of a text whose characters are all in the originals' tables: what utf8proc_map()
// gives, which takes quadratic time to order a run of marks.
Status append_normalized(std::string& out, std::string_view text, utf8proc_option_t options) {
  if (is_ascii(text)) {
    out += text;
    return {};
  }
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  TROUPE_RETURN_IF_ERROR(append_decomposed(points, text, options));
  order_marks(points);
  const auto count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
  if (count < 0)
    return invalid_argument(std::string("Unicode normalisation failed: ") + utf8proc_errmsg(count));
  points.resize(static_cast<size_t>(count));
  for (const utf8proc_int32_t c : points) append_utf8(out, static_cast<char32_t>(c));
  return {};
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& pos) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  char32_t lead = byte(pos);
  if (lead < 0x80) {
    pos += 1;
    return lead;
  }
  size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) value = value << 6 | (byte(pos + i) & 0x3F);
  pos += length;
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      out.push_back(static_cast<char>(0xE0 | c >> 12));
    } else {
      out.push_back(static_cast<char>(0xF0 | c >> 18));
      out.push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    }
    out.push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
  }
  out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

StatusOr<std::string> normalize_utf8(std::string_view text, NormalForm form) {
  bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (compatible) options |= UTF8PROC_COMPAT;
  // A character unknown to the originals never combines: the text before it and the text after
  // it are independent.
  std::string out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t at = pos;
    if (!contains(kNewerThanNormalizers, next_code_point(text, pos))) continue;
    TROUPE_RETURN_IF_ERROR(
        append_normalized(out, text.substr(begin, at - begin), static_cast<utf8proc_option_t>(options)));
    out += text.substr(at, pos - at);
    begin = pos;
  }
  TROUPE_RETURN_IF_ERROR(append_normalized(out, text.substr(begin), static_cast<utf8proc_option_t>(options)));
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  utf8proc_category_t category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) || contains(kNewNumbers, c);
}

bool is_letter(char32_t c) {
  utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(char32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

bool is_word_char(char32_t c) {
  utf8proc_category_t category = category_of(c);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
  bool circled_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || circled_letter ||
         contains(kNewWordCharacters, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && (c == 0x5F || !is_word_char(c));
  if (c == 0x166D || c == 0x111C9) return true;  // were punctuation when the original's table was made
  utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO &&
         !contains(kNewPunctuation, c);
}

bool is_mark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // were marks when the original's table was made
  utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME && !contains(kNewMarks, c);
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  for (const NewCapitals& capitals : kNewCapitals) {
    if (c < capitals.letters.first || c > capitals.letters.last) continue;
    append_utf8(out, static_cast<char32_t>(static_cast<int32_t>(c) + capitals.offset));
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

Utf8Part first_utf8_part(std::string_view rest) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(rest[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                  : (lead & 0xF0) == 0xE0        ? 3
                  : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                 : 0;
  if (length == 0) return {};
  // The second byte's range rules out overlong forms, surrogates and what lies beyond U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i >= rest.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

void take_valid_utf8(std::string& bytes, std::string& out, bool at_end) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    Utf8Part part = first_utf8_part(std::string_view(bytes).substr(pos));
    if (part.incomplete && !at_end) break;
    if (part.valid) {
      out.append(bytes, pos, part.size);
    } else {
      out.append(kReplacement);
    }
    pos += part.size;
  }
  bytes.erase(0, pos);
}

std::string without_cut_character(std::string_view bytes) {
  for (size_t tail = 1; tail <= std::min<size_t>(bytes.size(), 3); ++tail) {
    if (first_utf8_part(bytes.substr(bytes.size() - tail)).incomplete)
      return std::string(bytes.substr(0, bytes.size() - tail));
  }
  return std::string(bytes);
}

}  // namespace troupe
