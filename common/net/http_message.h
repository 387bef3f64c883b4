#pragma once

// Types shared by both ends of an exchange: header lists and a request. Plain data, no Asio.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as sent, path and query
  std::string path;    // target up to '?'
  HeaderList headers;  // names lower-case
  std::string body;
  bool keep_alive = true;

  // First value, or empty. Name in lower case.
  std::string_view header(std::string_view name) const;
};

// An endpoint: methods as an Allow header lists them ("GET, HEAD"), at a path, whose {id} may be
// anything.
struct HttpRoute {
  std::string_view methods, path;
};
bool lists_method(std::string_view methods, std::string_view method);

// First value of `name` (lower case), or empty.
std::string_view find_header(const HeaderList& headers, std::string_view name);

}  // namespace troupe
