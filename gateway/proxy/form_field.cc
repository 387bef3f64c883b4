#include "gateway/proxy/form_field.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>

#include <algorithm>
#include <vector>

namespace troupe {
namespace {

constexpr size_t kBoundaryMax = 70;
constexpr size_t kPartsMax = 256;
constexpr size_t kHeadBytesMax = 16 << 10;  // of a part

Status malformed(std::string_view what) {
  return invalid_argument("the form " + std::string(what));
}

std::string_view trimmed(std::string_view text) {
  return to_std(absl::StripAsciiWhitespace(to_absl(text)));
}
bool same_word(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(to_absl(a), to_absl(b));
}

struct Parameter {
  std::string name;  // in lower case
  std::string value;
};

// Takes a value from the beginning of `rest`: a token or a quoted string; nullopt: quotes without an end.
std::optional<std::string> take_value(std::string_view& rest) {
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(';'), rest.size());
    std::string value(trimmed(rest.substr(0, end)));
    if (value.find_first_of(" \t\"") != std::string::npos) return std::nullopt;
    rest.remove_prefix(end);
    return value;
  }
  std::string value;
  for (size_t at = 1; at < rest.size(); ++at) {
    if (rest[at] == '"') {
      rest.remove_prefix(at + 1);
      return value;
    }
    if (rest[at] == '\\' && at + 1 < rest.size()) at += 1;
    value += rest[at];
  }
  return std::nullopt;
}

// The parameters behind a header's first word (`form-data; name="model"`); nullopt: not of this form.
std::optional<std::vector<Parameter>> parameters(std::string_view header) {
  std::vector<Parameter> found;
  header.remove_prefix(std::min(header.find(';'), header.size()));
  while (!header.empty()) {
    if (header.front() != ';') return std::nullopt;
    header = trimmed(header.substr(1));
    if (header.empty()) break;
    const size_t equals = header.find('=');
    if (equals > header.find(';') || equals == std::string_view::npos) return std::nullopt;
    Parameter parameter{absl::AsciiStrToLower(to_absl(trimmed(header.substr(0, equals)))), {}};
    header = trimmed(header.substr(equals + 1));
    auto value = take_value(header);
    if (!value) return std::nullopt;
    parameter.value = *std::move(value);
    header = trimmed(header);
    found.push_back(std::move(parameter));
  }
  return found;
}

// The one value of a parameter; nullopt: it is there twice, or in RFC 5987's form (`name*`).
std::optional<std::string> single(const std::vector<Parameter>& parameters, std::string_view name) {
  std::optional<std::string> value;
  for (const Parameter& parameter : parameters) {
    if (parameter.name == std::string(name) + "*") return std::nullopt;
    if (parameter.name != name) continue;
    if (value) return std::nullopt;
    value = parameter.value;
  }
  return value.value_or("");
}

// The name that a part's header lines give it.
StatusOr<std::string> name_of(std::string_view head) {
  std::optional<std::string> name;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.find_first_of("\r\n") != std::string_view::npos ||
        line.front() == ' ' || line.front() == '\t')
      return malformed("has a part with a header line that is none");
    if (!same_word(trimmed(line.substr(0, colon)), "content-disposition")) continue;
    const auto its = parameters(line.substr(colon + 1));
    const auto its_name = its ? single(*its, "name") : std::nullopt;
    if (name || !its_name) return malformed("has a part with a content-disposition that is none");
    name = *its_name;
  }
  if (!name) return malformed("has a part without a content-disposition");
  return *std::move(name);
}

// Whether `rest`, behind the last part's mark, ends the form.
bool ends_form(std::string_view rest) {
  return rest.starts_with("--") && trimmed(rest.substr(2)).empty();
}

}  // namespace

StatusOr<std::string> form_boundary(std::string_view content_type) {
  if (!same_word(trimmed(content_type.substr(0, content_type.find(';'))), "multipart/form-data"))
    return std::string();
  const auto its = parameters(content_type);
  const auto boundary = its ? single(*its, "boundary") : std::nullopt;
  if (!boundary || boundary->empty() || boundary->size() > kBoundaryMax)
    return invalid_argument("content-type: must name one boundary of 1 to 70 characters");
  return *boundary;
}

StatusOr<std::optional<std::string_view>> form_field(std::string_view body, std::string_view boundary,
                                                     std::string_view name) {
  const std::string mark = "--" + std::string(boundary);
  const std::string next_mark = "\r\n" + mark;
  if (!body.starts_with(mark))
    return malformed("does not begin with the boundary that its content-type names");
  std::optional<std::string_view> found;
  size_t at = mark.size();
  for (size_t part = 0; !ends_form(body.substr(at)); ++part) {
    if (part == kPartsMax) return malformed("has more than 256 parts");
    if (body.substr(at, 2) != "\r\n") return malformed("has no end, or a boundary that goes on");
    const size_t end = body.find(next_mark, at);
    if (end == std::string_view::npos) return malformed("has no end");
    const std::string_view lines = body.substr(at, end - at);  // the line break before the head included
    if (lines.find("\n" + mark) != std::string_view::npos ||
        lines.find("\r" + mark) != std::string_view::npos)
      return malformed("has a boundary behind half a line break");
    const size_t head_end = lines.substr(0, kHeadBytesMax).find("\r\n\r\n");
    if (head_end == std::string_view::npos) return malformed("has a part without header lines");
    TROUPE_ASSIGN_OR_RETURN(const std::string its_name,
                            name_of(lines.substr(2, std::max<size_t>(head_end, 2) - 2)));
    if (its_name == name) {
      if (found) return malformed("has two parts named '" + std::string(name) + "'");
      found = lines.substr(head_end + 4);
    }
    at = end + next_mark.size();
  }
  return found;
}

}  // namespace troupe
