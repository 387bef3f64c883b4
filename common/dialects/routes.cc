#include "common/dialects/routes.h"

#include <algorithm>
#include <array>

#include "common/dialects/anthropic/anthropic.h"
#include "common/dialects/kobold/kobold.h"
#include "common/dialects/probes/probes.h"
#include "common/dialects/responses/responses.h"
#include "common/net/http_message.h"

namespace troupe {
namespace {

using namespace dialect;

constexpr std::array kDialectRoutes{
    DialectRoute{"POST", "/v1/messages", anthropic::translate_messages, anthropic::make_answer},
    DialectRoute{"POST", "/v1/messages/count_tokens", anthropic::translate_count, anthropic::make_answer},
    DialectRoute{"POST", "/v1/responses", responses::translate, responses::make_refusal},
    DialectRoute{"POST", "/api/v1/generate", kobold::translate_generate, kobold::make_refusal},
    DialectRoute{"POST", "/api/latest/generate", kobold::translate_generate, kobold::make_refusal},
    DialectRoute{"POST", "/api/extra/generate/stream", kobold::translate_stream, kobold::make_refusal},
    DialectRoute{"GET, POST", "/api/extra/generate/check", kobold::translate_control, kobold::make_refusal},
    DialectRoute{"POST", "/api/extra/abort", kobold::translate_control, kobold::make_refusal},
    DialectRoute{"POST", "/api/extra/tokencount", kobold::translate_count, kobold::make_refusal},
    DialectRoute{"GET", "/api/extra/perf", kobold::translate_question, kobold::make_refusal},
    DialectRoute{"GET", "/api/extra/version", kobold::translate_question, kobold::make_refusal},
    DialectRoute{"GET", "/api/extra/true_max_context_length", kobold::translate_question,
                 kobold::make_refusal},
    DialectRoute{"GET", "/api/v1/model", kobold::translate_question, kobold::make_refusal},
    DialectRoute{"GET", "/api/v1/info/version", kobold::translate_question, kobold::make_refusal},
    DialectRoute{"GET", "/api/v1/config/max_context_length", kobold::translate_question,
                 kobold::make_refusal},
    DialectRoute{"GET", "/api/v1/config/max_length", kobold::translate_question, kobold::make_refusal},
    DialectRoute{"POST", "/completion", probes::translate_completion, probes::make_refusal},
    DialectRoute{"GET", "/props", probes::translate_question, probes::make_refusal},
    DialectRoute{"GET", "/v1/model", probes::translate_question, probes::make_refusal},
    DialectRoute{"GET", "/v1/model/list", probes::translate_question, probes::make_refusal},
    DialectRoute{"GET", "/v1/auth/permission", probes::translate_question, probes::make_refusal},
    DialectRoute{"GET", "/v1/internal/model/info", probes::translate_question, probes::make_refusal},
    DialectRoute{"POST", "/v1/tokenize", probes::translate_tokenize, probes::make_refusal},
    DialectRoute{"POST", "/v1/token/encode", probes::translate_encode, probes::make_refusal},
    DialectRoute{"POST", "/v1/token/decode", probes::translate_decode, probes::make_refusal},
    DialectRoute{"POST", "/v1/internal/encode", probes::translate_encode, probes::make_refusal},
    DialectRoute{"POST", "/v1/internal/decode", probes::translate_decode, probes::make_refusal},
    DialectRoute{"POST", "/v1/internal/token-count", probes::translate_encode, probes::make_refusal},
};

const DialectRoute* route_at(std::string_view path) {
  const auto found = std::find_if(kDialectRoutes.begin(), kDialectRoutes.end(),
                                  [path](const DialectRoute& route) { return route.path == path; });
  return found == kDialectRoutes.end() ? nullptr : &*found;
}

}  // namespace

std::span<const DialectRoute> dialect_routes() {
  return kDialectRoutes;
}

const DialectRoute* find_dialect(std::string_view method, std::string_view path) {
  const DialectRoute* route = route_at(path);
  return route != nullptr && lists_method(route->methods, method) ? route : nullptr;
}

std::string_view dialect_methods(std::string_view path) {
  const DialectRoute* route = route_at(path);
  return route == nullptr ? std::string_view() : route->methods;
}

bool dialect_asks(std::string_view path) {
  return route_at(path) != nullptr && path != "/api/extra/abort" && path != "/api/extra/generate/check";
}

}  // namespace troupe
