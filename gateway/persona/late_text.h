#pragma once

// Texts with macros, as character cards have them: {{char}} (also <BOT>, <CHAR>), {{user}} (<USER>), and
// {{name}} for a variable, in whatever case. {{char}} is known when a persona is published; the others are a
// request's. {{original}} is nothing, and {{// …}} a comment. Braces around anything that is no name are
// text.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"

namespace troupe {

// By name in lower case.
using PersonaVariables = std::map<std::string, std::string, std::less<>>;

class LateText {
 public:
  LateText() = default;
  // The error names `field`: a macro whose value would differ at each call ({{random:…}}, {{roll:…}}) and
  // others with arguments, which only front ends know.
  static ApiResult<LateText> compile(std::string_view field, std::string_view text,
                                     std::string_view character);

  bool empty() const { return pieces_.empty(); }
  bool names_user() const;
  // The variables that it has, each once; `user` is not among them.
  std::vector<std::string> variables() const;
  // Appends it with `user` for {{user}}. Returns the name of a variable that has no value, which is left out;
  // else empty.
  std::string append(std::string& out, std::string_view user, const PersonaVariables& given,
                     const PersonaVariables& defaults) const;

 private:
  struct Piece {
    std::string text;        // as it is,
    std::string macro = {};  // or, if not empty, this one's value: "user" or a variable's name
  };
  void add_text(std::string_view text);

  std::vector<Piece> pieces_;
};

// A name in lower case, as macros are compared; empty: it is none. Letters, digits, '_' and '-', 64 at most.
std::string macro_name(std::string_view text);

}  // namespace troupe
