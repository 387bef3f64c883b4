#pragma once

// The first two phases: bytes → request, or an error in the API's shape; request → what routing needs of it.
// Plain functions, no sockets. What the gateway does not route by is parsed all the same, by the parser the
// worker uses: a body that is wrong is refused here, before a node is bothered.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/api.h"
#include "common/core/time.h"
#include "common/net/http_server.h"
#include "common/net/request_headers.h"
#include "gateway/access/model_routes.h"
#include "gateway/proxy/persona_assembly.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/telemetry/prompt_fingerprint.h"

namespace troupe {

// A request once it is parsed: its text stays in the body, which is forwarded as it came.
struct RoutedRequest {
  std::string model;  // empty where the body may leave it out, and does
  bool stream = false;
  bool whole = false;  // `stream` is absent, null or false, in every spelling that some server takes
  int32_t choices = 1;
  bool generates = true;              // false: text in only, no answer to wait for and no cache to find
  bool pin = false;                   // a prefix is to be kept,
  std::optional<int64_t> ttl_s = {};  // for so long
  bool prefills = false;  // a prefix to be computed, without an answer: takes room at a worker all the same
  bool passes = false;    // as it came, to a worker of another kind: an answer of any form
  int32_t priority = 0;   // the client's wish
  std::optional<int64_t> answer_tokens_max;
  std::string salt;       // a tenant's, sent to the worker in place of the client's own; else empty
  bool own_salt = false;  // of a prefix: the client has named a cache_salt of its own
  route::PrefixKey key;
  bool takes_room() const { return generates || prefills || passes; }  // at a worker
  PromptFingerprint marks;                    // only where RequestParserOptions::mark_salt asks for them
  std::unique_ptr<AssembledPersona> persona;  // null: the request names none
  // The parsed body, without `model`; only where RequestParserOptions::keep_parsed asks for it.
  std::unique_ptr<GenerateRequest> parsed;
  std::string end_user;     // as the body names one; only where RequestParserOptions::names_users asks for it
  std::string asked_model;  // as the client named it, where a route leads to another; else empty
};

// A client pays for its tokens: not where a text is only converted to tokens, or they are counted.
bool costs_tokens(const HttpRequest& request, const RoutedRequest& routed);

struct RequestParserOptions {
  ApiLimits api{.takes_personas = true};
  Duration request_timeout = std::chrono::seconds(1800);
  std::optional<Hash128> mark_salt;  // traffic is recorded
  bool keep_parsed = false;
  bool names_users = false;
  ModelRoutes routes;
};

// x-request-timeout-ms, at most the configured time-out; that one where the header is absent.
ApiResult<Duration> timeout_of(const HttpRequest& request, const RequestParserOptions& options);

// x-troupe-retry: may what a worker has perhaps begun to compute be sent to another one, when it fails before
// its first byte? (Where it never saw the request, and where a stream goes on, nothing is done twice.)
enum class Resend : uint8_t { kAsConfigured, kAlways, kConnect };
ApiResult<Resend> resend_of(const HttpRequest& request);

struct RequestParserInput;
// Replaces a model's name that is a route's; `named` has what names user and conversation. Returns the name
// that was asked for, or "" where none was replaced.
std::string follow_route(const HttpRequest& request, const RequestParserInput& input, GenerateRequest& named);

// The inputs of parsing beside the request itself.
struct RequestParserInput {
  const RequestParserOptions& options;
  ApiParser& parser;             // of `options.api`; its buffers are used again for the next request
  std::string_view tenant_salt;  // of the client's tenant, see tenant.h; empty: of no tenant
  std::string_view model = {};   // of a body that names none
  bool among_tenants = false;    // see ApiClient
  PersonaRegistry* personas = nullptr;
  const ApiClient* client = nullptr;  // null: the gateway has no keys
  std::string_view key = {};          // the API key's name
  std::string_view user_header = {};  // see end_user_of()
};

ApiResult<RoutedRequest> parse_generate(const HttpRequest& request, GenerateRequest::Kind kind,
                                        const RequestParserInput& input);

// POST /v1/prefixes: keyed as the requests are that will begin so.
ApiResult<RoutedRequest> parse_prefix(const HttpRequest& request, const RequestParserInput& input);

// The paths whose requests ours answer, too, each with its parser; nullptr: `path` is none of them.
using ForwardParser = ApiResult<RoutedRequest> (*)(const HttpRequest& request,
                                                   const RequestParserInput& input);
ForwardParser forward_parser(std::string_view path);

// The kind of a body where no path says so (/admin/explain): chat if it has `messages`.
ApiResult<GenerateRequest::Kind> kind_of_body(std::string_view body);

}  // namespace troupe
