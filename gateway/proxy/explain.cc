// What the proxy tells about itself: its health, and where a request would go.

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/proxy/proxy.h"

namespace troupe {
namespace {

std::string_view source_name(route::SessionSource source) {
  switch (source) {
    case route::SessionSource::kNone:
      return "none";
    case route::SessionSource::kHeader:
      return "x-session-id";
    case route::SessionSource::kPromptCacheKey:
      return "prompt_cache_key";
    case route::SessionSource::kUser:
      return "user";
    case route::SessionSource::kFirstTurn:
      return "first user turn";
  }
  return "none";
}

bj::value hex_or_null(const Hash128& hash) {
  return hash.is_zero() ? bj::value(nullptr) : bj::value(hash.hex());
}

}  // namespace

std::pair<int, std::string> Proxy::health() const {
  bj::object body;
  body["status"] = healthy() ? "ok" : "unavailable";
  if (leaving_) {
    body["reason"] = "shutting down";
  } else if (!fleet_.probed()) {
    body["reason"] = "the workers have not been probed yet";
  } else if (!healthy()) {
    body["reason"] = "no worker is ready";
  }
  body["workers_ready"] = router_.view().routable_count();
  body["workers"] = fleet_.member_count();
  return {healthy() ? 200 : 503, to_json(body)};
}

// Would it go to the workers now, or wait? With an Authorization header, as one of that API key's.
bj::object Proxy::explain_admission(const RoutedRequest& routed, const route::Decision& decision,
                                    const RequestContext& context) const {
  const TimePoint deadline = clock_.now() + options_.request_timeout;
  const auto request = route::admission_request(router_, routed.key, decision,
                                                admission_spec(routed, context.client.get(), deadline));
  const auto preview = admission_queue_.preview(request);
  const route::Admission& admission = admission_queue_.admission();
  bj::object out;
  out["outcome"] = bj::string(route::admission_outcome_name(preview.answer.outcome));
  out["wait_s"] = std::chrono::duration<double>(preview.answer.wait).count();
  out["api_key"] = context.client == nullptr ? bj::value(nullptr) : bj::value(context.client->name());
  out["priority"] = request.priority;
  out["tokens"] = request.tokens;
  out["room"] = preview.room == route::kEndlessRoom ? bj::value(nullptr) : bj::value(preview.room);
  out["running"] = admission.running();
  out["running_tokens"] = admission.running_tokens();
  out["waiting"] = admission.waiting();
  return out;
}

// As whose the request is explained: of the key that a header names, or else of the one it brings.
ApiResult<bool> Proxy::identify_explained(const HttpRequest& request, RequestContext& context) const {
  const std::string_view name = request.header(kExplainedKeyHeader);
  if (keys_ != nullptr && !name.empty()) {
    context.client = keys_->named(name);
    if (context.client == nullptr)
      return ApiError::bad_field(
          "", absl::StrCat(to_absl(kExplainedKeyHeader), ": no API key has the name '", to_absl(name), "'"));
    return true;
  }
  if (request.header("authorization").empty()) return true;
  return identify(request, context);
}

ApiResult<std::string> Proxy::explain(const HttpRequest& request) {
  const auto kind = kind_of_body(request.body);
  if (!kind.ok()) return kind.error();
  RequestContext context;
  if (const auto known = identify_explained(request, context); !known.ok()) return known.error();
  auto routed = parse_generate(request, kind.value(), parser_input(context));
  if (!routed.ok()) return routed.error();
  router_.refine(routed.value().key);
  const route::PrefixKey& key = routed.value().key;
  const route::Decision decision = router_.preview(key, routed.value().model, clock_.now());

  bj::array order;
  for (const route::Candidate& c : decision.order.all()) {
    bj::object item;
    item["node"] = fleet_.id(c.node);
    item["branch"] = bj::string(route::branch_name(c.branch));
    item["expect_cached_tokens"] = c.expect_cached;
    // The cost in prompt tokens and what it is made of.
    item["cost"] = c.cost;
    item["miss_tokens"] = c.miss;
    item["pending_cost"] = c.load.pending;
    item["load_cost"] = c.load.relative;
    item["noise"] = c.noise;
    item["overloaded"] = c.overloaded;
    item["suspect"] = c.suspect;
    order.emplace_back(std::move(item));
  }
  bj::object out;
  out["model"] = routed.value().model;
  out["set"] = hex_or_null(key.set);
  out["session"] = hex_or_null(key.session);
  out["session_source"] = bj::string(source_name(key.session_source));
  out["prefix_messages"] = key.prefix_messages;
  out["prefix_bytes"] = key.prefix_bytes;
  out["prompt_bytes"] = key.prompt_bytes;
  out["in_table"] = !key.set.is_zero() && router_.table()->find(key.set, routed.value().model) != nullptr;
  out["set_share"] = router_.known().sets.share(key.set);
  out["set_holders"] = route::CachedPrefix(router_.known(), key, {}).set_holders();
  out["policy"] = router_.options().policy;
  out["mode"] = bj::string(route::mode_name(router_.options().affinity.mode));
  out["table_epoch"] = decision.table_epoch;
  out["view_epoch"] = decision.view_epoch;
  out["order"] = std::move(order);
  out["admission"] = explain_admission(routed.value(), decision, context);
  return to_json(out);
}

}  // namespace troupe
