#include "gateway/proxy/routes.h"

#include <algorithm>
#include <array>

#include "common/api/api.h"
#include "common/api/passed_paths.h"
#include "common/api/prefix.h"
#include "common/dialects/routes.h"
#include "gateway/proxy/persona_http.h"
#include "gateway/proxy/request_parser.h"

namespace troupe {
namespace {

constexpr std::string_view kModelPath = "/v1/models/{id}", kPrefixPath = "/v1/prefixes/{id}",
                           kPersonaPath = "/v1/personas/{name}";

constexpr std::array<HttpRoute, 12> kRoutes{{{"POST", "/v1/chat/completions"},
                                             {"POST", "/v1/completions"},
                                             {"POST", "/tokenize"},
                                             {"POST", "/detokenize"},
                                             {"GET, HEAD", "/v1/models"},
                                             {"GET, HEAD", "/v1/models/"},
                                             {"GET, HEAD", kModelPath},
                                             {"GET, HEAD, POST", kPrefixesPath},
                                             {"GET, HEAD, DELETE", kPrefixPath},
                                             {"GET, HEAD", kPersonasPath},
                                             {"GET, HEAD, PUT, DELETE", kPersonaPath},
                                             {"GET, HEAD", "/health"}}};

}  // namespace

std::vector<HttpRoute> main_port_routes() {
  std::vector<HttpRoute> routes(kRoutes.begin(), kRoutes.end());
  for (const DialectRoute& route : dialect_routes()) routes.push_back({route.methods, route.path});
  for (const std::string_view path : kPassedPaths)
    if (dialect_methods(path).empty()) routes.push_back({"POST", path});
  return routes;
}

std::string_view main_port_methods(std::string_view path) {
  if (is_passed_path(path)) return "POST";
  if (const std::string_view methods = dialect_methods(path); !methods.empty()) return methods;
  if (!prefix_id_of(path).empty()) path = kPrefixPath;
  if (!model_of_path(path).empty()) path = kModelPath;
  if (!persona_name_of(path).empty()) path = kPersonaPath;
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(),
                                  [path](const HttpRoute& route) { return route.path == path; });
  return found == kRoutes.end() ? std::string_view() : found->methods;
}

bool changes_state(const HttpRequest& request) {
  if (request.method == "GET" || request.method == "HEAD") return false;
  const bool asks =
      is_passed_path(request.path) || forward_parser(request.path) != nullptr || dialect_asks(request.path);
  return !asks && lists_method(main_port_methods(request.path), request.method);
}

bool lists_models(std::string_view path) {
  return path == "/v1/models" || path == "/v1/models/";
}

}  // namespace troupe
