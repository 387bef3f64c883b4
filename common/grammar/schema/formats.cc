// Formats of JSON Schema as regular expressions: narrower than their standards where those are not regular or
// allow what few readers take, never wider.

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/grammar/schema/scalars.h"

namespace troupe::grammar {

namespace {

// Days by month, the 29th of February in leap years alone; no year 0, which Python's dates do not have.
const std::string& date() {
  static const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
  static const std::string regex =
      "(?:" + year +
      "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|"
      "2[0-8]))|"
      "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
  return regex;
}

const std::string& time() {
  static const std::string regex =
      "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
  return regex;
}

std::string ipv4() {
  return "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
}

std::string ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}";
  std::string regex = "(?:" + h + ":){7}" + h;
  for (int before = 0; before <= 7; ++before) {
    const int behind = 7 - before;  // at most so many groups behind the gap
    const std::string head = before == 0 ? ":" : h + "(?::" + h + "){" + std::to_string(before - 1) + "}:";
    const std::string tail = behind == 0 ? ":" : "(?::|(?::" + h + "){1," + std::to_string(behind) + "})";
    regex += "|" + head + tail;
  }
  return "(?:" + regex + ")";
}

std::string hostname() {
  return "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){"
         "0,7}";
}

std::string uri(bool is_reference) {
  const std::string c = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
  const std::string path = "(?:/" + c + "*)*";
  const std::string tail = "(?:\\?(?:" + c + "|[/?])*)?(?:#(?:" + c + "|[/?])*)?";
  const std::string authority = "//" + hostname() + "(?::\\d{1,5})?" + path;
  const std::string absolute = "[a-zA-Z][a-zA-Z0-9+.-]*:(?:" + authority + "|" + c + "+" + path + ")" + tail;
  return is_reference ? "(?:" + absolute + "|" + path + tail + ")" : absolute;
}

std::string duration() {
  const std::string clock = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
  const std::string days = "\\d+D", months = "\\d+M(?:" + days + ")?", years = "\\d+Y(?:" + months + ")?";
  return "P(?:(?:" + days + "|" + months + "|" + years + ")(?:" + clock + ")?|" + clock + "|\\d+W)";
}

}  // namespace

std::string_view format_regex(std::string_view format) {
  static const std::string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
  static const std::array<std::pair<std::string_view, std::string>, 13> formats = {{
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "T" + time()},
      {"duration", duration()},
      {"email", atom + "(?:\\." + atom + "){0,8}@" + hostname()},
      {"hostname", hostname()},
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"uri", uri(false)},
      {"uri-reference", uri(true)},
      {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
      {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
  }};
  for (const auto& [name, regex] : formats)
    if (name == format) return regex;
  return {};
}

bool is_defined_format(std::string_view format) {
  static constexpr std::array<std::string_view, 7> kOthers = {
      "idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "relative-json-pointer", "regex"};
  return !format_regex(format).empty() || std::find(kOthers.begin(), kOthers.end(), format) != kOthers.end();
}

}  // namespace troupe::grammar
