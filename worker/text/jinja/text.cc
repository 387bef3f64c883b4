#include "worker/text/jinja/text.h"

#include <utf8proc.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/status.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

// Limit of one value's printed text; values can share parts, so a small one may print large.
constexpr size_t kTextBytesMax = 16u << 20;

void check_size(const std::string& text) {
  if (text.size() > kTextBytesMax)
    throw JinjaError(absl::StrCat("a value prints as more than ", kTextBytesMax, " bytes"));
}

void append_repr(std::string& out, const Value& value);

void append_text_repr(std::string& out, std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos;
  bool has_double = text.find('"') != std::string_view::npos;
  char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  for (size_t pos = 0; pos < text.size();) {
    char32_t c = next_code_point(text, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c) || is_mark(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(c));
    }
  }
  out.push_back(quote);
}

void append_list_repr(std::string& out, const List& list) {
  if (list.kind == ListKind::kRange) throw JinjaError("a range cannot be printed; use |list");
  constexpr const char* kBefore[] = {"[", "(", "", "dict_items([", "dict_keys([", "dict_values(["};
  constexpr const char* kAfter[] = {"]", ")", "", "])", "])", "])"};
  out += kBefore[static_cast<size_t>(list.kind)];
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, list.items[i]);
  }
  if (list.kind == ListKind::kTuple && list.items.size() == 1) out += ",";
  out += kAfter[static_cast<size_t>(list.kind)];
}

void append_dict_repr(std::string& out, const Dict& dict) {
  out += "{";
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, dict.entries[i].first);
    out += ": ";
    append_repr(out, dict.entries[i].second);
  }
  out += "}";
}

void append_repr(std::string& out, const Value& value) {
  check_size(out);
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_markup()) {
    out += "Markup(";
    append_text_repr(out, value.text());
    out += ")";
  } else if (value.is_string()) {
    append_text_repr(out, value.text());
  } else if (const List* list = value.list()) {
    append_list_repr(out, *list);
  } else if (const Dict* dict = value.dict()) {
    append_dict_repr(out, *dict);
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.integer() != 0 ? "True" : "False";
  } else if (value.is_int()) {
    absl::StrAppend(&out, value.integer());
  } else if (value.is_float()) {
    out += float_repr(value.number());
  } else if (const WideInteger* wide = wide_integer(value)) {
    out += wide->digits();
  } else {
    // Python prints an address here, which no template intends.
    throw JinjaError("a " + value.type_name() + " cannot be printed");
  }
}

// Appends a character's simple mapping, or the few common ones that map to several characters.
void append_upper(std::string& out, char32_t c) {
  constexpr std::string_view kLigatures[] = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};
  if (c == 0xDF) {
    out += "SS";
  } else if (c >= 0xFB00 && c <= 0xFB06) {
    out += kLigatures[c - 0xFB00];
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "Ss";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {
    out += "i\u0307";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) {
  utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

}  // namespace

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

void require_defined(const Value& value) {
  if (!value.is_undefined()) return;
  const auto& why = value.as_undefined().why;
  throw JinjaError(why == nullptr ? "the value is undefined" : *why);
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return repr(value);
  charge_read(value.text().size());
  return value.text();
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  check_size(out);
  charge_characters(out.size());
  return out;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const char* begin = text.data() + from;
  const void* at = memmem(begin, text.size() - from, needle.data(), needle.size());
  const size_t passed =
      at == nullptr ? text.size() - from : static_cast<size_t>(static_cast<const char*>(at) - begin);
  charge_read(needle.size() + passed);
  return at == nullptr ? std::string_view::npos : from + passed;
}

size_t find_last_text(std::string_view text, std::string_view needle) {
  charge_read(text.size() + needle.size());
  const std::string backwards(text.rbegin(), text.rend());
  const size_t at = find_text(backwards, std::string(needle.rbegin(), needle.rend()), 0);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

bool is_python_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

std::string to_upper(std::string_view text) {
  charge_characters(text.size());
  std::string out;
  for (size_t pos = 0; pos < text.size();) append_upper(out, next_code_point(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  charge_characters(text.size());
  std::string out;
  for (size_t pos = 0; pos < text.size();) append_lower(out, next_code_point(text, pos));
  return out;
}

std::string capitalize(std::string_view text) {
  charge_characters(text.size());
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    bool first = pos == 0;
    char32_t c = next_code_point(text, pos);
    first ? append_title(out, c) : append_lower(out, c);
  }
  return out;
}

std::string title(std::string_view text) {
  charge_characters(text.size());
  std::string out;
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    char32_t c = next_code_point(text, pos);
    after_cased ? append_lower(out, c) : append_title(out, c);
    after_cased = is_cased(c);
  }
  return out;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> chars, StripSide side) {
  auto stripped = [&](std::string_view character) {
    size_t pos = 0;
    charge_characters(character.size());
    if (!chars.has_value()) return is_python_space(next_code_point(character, pos));
    charge_read(chars->size());
    return chars->find(character) != std::string_view::npos;
  };
  while (side != StripSide::kRight && !text.empty()) {
    size_t pos = 0;
    next_code_point(text, pos);
    if (!stripped(text.substr(0, pos))) break;
    text.remove_prefix(pos);
  }
  while (side != StripSide::kLeft && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!stripped(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  charge_characters(text.size());
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t at = pos;
    char32_t c = next_code_point(text, pos);
    bool ends =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(begin, (keep_ends ? pos : at) - begin));
    charge_read(kPartBytes);
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string escape_html(std::string_view text) {
  charge_read(text.size());
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace troupe::jinja
