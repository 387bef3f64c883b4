#include "gateway/persona/late_text.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe {

namespace {

constexpr size_t kNameBytesMax = 64;
// Values that front ends draw, or read off a clock, anew at each request.
constexpr std::array<std::string_view, 5> kDrawn{"random", "pick", "roll", "datetimeformat", "timediff"};

bool is_name_char(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

struct Tag {
  std::string_view spelt, macro;
};
constexpr std::array<Tag, 3> kTags{{{"<USER>", "user"}, {"<BOT>", "char"}, {"<CHAR>", "char"}}};

// The macro that begins here, and where it ends; at most 4 KiB of arguments.
struct Found {
  std::string name;  // empty: there is none
  bool has_arguments = false;
  size_t end = 0;
};

Found find_tag(std::string_view text, size_t at) {
  for (const Tag& tag : kTags) {
    if (absl::StartsWithIgnoreCase(to_absl(text.substr(at)), to_absl(tag.spelt)))
      return {std::string(tag.macro), false, at + tag.spelt.size()};
  }
  return {};
}

// Where braces close, for places that are asked in their order: each byte is looked at once.
class Closes {
 public:
  explicit Closes(std::string_view text) : text_(text) {}
  size_t from(size_t at) {
    if (next_ < at || !looked_) next_ = text_.find("}}", at);
    looked_ = true;
    return next_;
  }

 private:
  const std::string_view text_;
  bool looked_ = false;
  size_t next_ = 0;  // npos: no more
};

Found find_macro(std::string_view text, size_t at, Closes& closes) {
  if (text[at] == '<') return find_tag(text, at);
  if (!text.substr(at).starts_with("{{")) return {};
  constexpr size_t kMacroBytesMax = 4096;
  const size_t close = closes.from(at + 2);
  if (close == std::string_view::npos || close + 2 > at + kMacroBytesMax) return {};
  const std::string_view inner = text.substr(at + 2, close - at - 2);
  if (inner.starts_with("//")) return {"//", false, close + 2};
  std::string name = macro_name(inner);
  if (!name.empty()) return {std::move(name), false, close + 2};
  const size_t name_end = inner.substr(0, kNameBytesMax + 1).find_first_of(": ");
  name = name_end == std::string_view::npos ? "" : macro_name(inner.substr(0, name_end));
  if (name.empty()) return {};
  const bool drawn = std::find(kDrawn.begin(), kDrawn.end(), name) != kDrawn.end();
  if (inner[name_end] == ' ' && !drawn) return {};  // words between braces
  return {std::move(name), true, close + 2};
}

}  // namespace

std::string macro_name(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto name_end =
      static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_name_char) - text.begin());
  const bool is_alone = text.find_first_not_of(' ', name_end) == std::string_view::npos;
  if (name_end == 0 || name_end > kNameBytesMax || !is_alone) return "";
  return absl::AsciiStrToLower(to_absl(text.substr(0, name_end)));
}

void LateText::add_text(std::string_view text) {
  if (text.empty()) return;
  if (pieces_.empty() || !pieces_.back().macro.empty()) pieces_.emplace_back();
  pieces_.back().text += text;
}

ApiResult<LateText> LateText::compile(std::string_view field, std::string_view text,
                                      std::string_view character) {
  LateText out;
  Closes closes(text);
  size_t begin = 0;
  for (size_t at = text.find_first_of("{<"); at < text.size();) {
    const Found macro = find_macro(text, at, closes);
    if (macro.name.empty()) {
      at = text.find_first_of("{<", at + 1);
      continue;
    }
    const bool drawn = std::find(kDrawn.begin(), kDrawn.end(), macro.name) != kDrawn.end();
    if (macro.has_arguments || drawn) {
      return ApiError::bad_field(
          field,
          absl::StrCat("'", to_absl(field), "' has {{", macro.name,
                       drawn ? "}}, which would differ at each request" : ":…}}, which is not known here",
                       "; a request can send such a value in persona.variables, for a {{name}}"));
    }
    out.add_text(text.substr(begin, at - begin));
    if (macro.name == "char") {
      out.add_text(character);
    } else if (macro.name != "//" && macro.name != "original") {
      out.pieces_.push_back({"", macro.name});
    }
    begin = macro.end;
    at = text.find_first_of("{<", begin);
  }
  out.add_text(text.substr(begin));
  return out;
}

bool LateText::names_user() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.macro == "user"; });
}

std::vector<std::string> LateText::variables() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_) {
    if (!piece.macro.empty() && piece.macro != "user") names.push_back(piece.macro);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string LateText::append(std::string& out, std::string_view user, const PersonaVariables& given,
                             const PersonaVariables& defaults) const {
  std::string missing;
  for (const Piece& piece : pieces_) {
    out += piece.text;
    if (piece.macro.empty()) continue;
    if (piece.macro == "user") {
      out += user;
    } else if (const auto own = given.find(piece.macro); own != given.end()) {
      out += own->second;
    } else if (const auto usual = defaults.find(piece.macro); usual != defaults.end()) {
      out += usual->second;
    } else {
      missing = piece.macro;
    }
  }
  return missing;
}

}  // namespace troupe
