#include "gateway/proxy/form_field.h"

#include <algorithm>
#include <cctype>

namespace troupe {
namespace {

constexpr size_t kBoundaryMax = 70;
constexpr size_t kPartsMax = 256;  // of a form; a model named behind more is not found

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// The value of a header's parameter (`name="model"`, or without quotes); empty: it has none.
std::string parameter(std::string_view header, std::string_view name) {
  const std::string low = lower(header);
  const std::string wanted = std::string(name) + "=";
  size_t at = 0;
  while ((at = low.find(wanted, at)) != std::string::npos) {
    const bool begins = at == 0 || low[at - 1] == ';' || low[at - 1] == ' ' || low[at - 1] == '\t';
    at += wanted.size();
    if (!begins) continue;
    std::string_view rest = header.substr(at);
    if (!rest.starts_with('"')) return std::string(rest.substr(0, rest.find_first_of("; \t\r\n")));
    rest.remove_prefix(1);
    const size_t end = rest.find('"');
    return end == std::string_view::npos ? "" : std::string(rest.substr(0, end));
  }
  return "";
}

// The Content-Disposition among a part's header lines; empty: it has none.
std::string_view disposition(std::string_view head) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    if (lower(line.substr(0, 20)) == "content-disposition:") return line.substr(20);
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return {};
}

}  // namespace

std::string form_boundary(std::string_view content_type) {
  if (!lower(content_type.substr(0, 19)).starts_with("multipart/form-data")) return "";
  std::string boundary = parameter(content_type, "boundary");
  return boundary.size() <= kBoundaryMax ? boundary : "";
}

std::optional<std::string_view> form_field(std::string_view body, std::string_view boundary,
                                           std::string_view name) {
  const std::string mark = "--" + std::string(boundary);
  const std::string next_mark = "\r\n" + mark;
  if (!body.starts_with(mark)) return std::nullopt;
  size_t at = mark.size();
  for (size_t part = 0; part < kPartsMax; ++part) {
    if (body.substr(at, 2) != "\r\n") return std::nullopt;  // the last one, or no form
    at += 2;
    const size_t end = body.find(next_mark, at - 2);
    const size_t head_end = body.find("\r\n\r\n", at - 2);
    if (end == std::string_view::npos) return std::nullopt;
    const bool has_head = head_end != std::string_view::npos && head_end < end;
    if (has_head &&
        parameter(disposition(body.substr(at, head_end - std::min(head_end, at))), "name") == name)
      return body.substr(head_end + 4, end - std::min(end, head_end + 4));
    at = end + next_mark.size();
  }
  return std::nullopt;
}

}  // namespace troupe
