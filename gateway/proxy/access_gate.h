#pragma once

// API keys at the door: which client a request comes from, what it may use, and what it is charged. Without
// keys everything is allowed. A key comes as `authorization: Bearer KEY`, `api-key: KEY` or `x-api-key: KEY`,
// the first of these that is there. On the event loop's thread.

#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/net/http_server.h"
#include "gateway/access/api_keys.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/request_context.h"
#include "gateway/upstream/forward.h"

namespace troupe {

// The name of the API key for which a request is explained (/admin/explain).
inline constexpr std::string_view kExplainedKeyHeader = "x-troupe-key";

// A request's key in the form that ApiKeys::find() takes: its Authorization, else what Azure's and
// Anthropic's clients send as api-key and x-api-key; empty: it has none.
std::string authorization_of(const HttpRequest& request);

class AccessGate {
 public:
  explicit AccessGate(ProxyCore& core) : core_(core) {}

  // Only clients with one of these keys may ask from now on. REQUIRES: they outlive this.
  void require(const ApiKeys& keys) { keys_ = &keys; }
  bool keys_required() const { return keys_ != nullptr; }

  // A request with this head may be let in: its body is worth waiting for. False: it has no key, and is
  // refused without its body.
  bool wants_body(const HttpRequest& head) const;
  // Sets the context's client. The error: 401.
  ApiResult<bool> identify(const HttpRequest& request, RequestContext& context) const;
  // The client of kExplainedKeyHeader, else the one of the request's own key.
  ApiResult<bool> identify_explained(const HttpRequest& request, RequestContext& context) const;
  // identify(), and a visit within the key's limits. The error: 401 or 429.
  ApiResult<bool> let_in(const HttpRequest& request, RequestContext& context) const;

  static bool may_use(const RequestContext& context, const std::string& model) {
    return context.client == nullptr || context.client->may_use(model);
  }
  static std::string_view tenant_salt(const RequestContext& context) {
    return context.client == nullptr ? std::string_view() : context.client->tenant_salt();
  }

  // Charges the prompt, about: the least that a request costs which has been sent.
  static void charge_prompt(const HttpRequest& request, RequestContext& context);
  // Charges one try: nothing if it failed; else the worker's counts, or about what passed. A request
  // that met its deadline has had its prompt computed, as one that was cancelled: the client sets both.
  void charge(const Exchange& exchange, RequestContext& context, const ForwardResult& result) const;
  // The client has left. The worker's counts are known if it left after the last event.
  void charge_cancelled(const Exchange& exchange, RequestContext& context) const;

 private:
  void charge_seen(const Exchange& exchange, RequestContext& context) const;

  ProxyCore& core_;
  const ApiKeys* keys_ = nullptr;
};

}  // namespace troupe
