#pragma once

// All that the gateway's main port answers, as one table: a path that is not in it does not exist there.

#include <string_view>
#include <vector>

#include "common/net/http_message.h"

namespace troupe {

std::vector<HttpRoute> main_port_routes();

// The methods of a request's path; empty: it does not exist.
std::string_view main_port_methods(std::string_view path);
// A request of this kind changes what the gateway or its workers keep, for others as well: all do that
// neither read nor ask a model.
bool changes_state(const HttpRequest& request);

bool lists_models(std::string_view path);

}  // namespace troupe
