#include "gateway/proxy/route_explainer.h"

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

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

ApiResult<std::string> RouteExplainer::explain(const HttpRequest& request) {
  const auto kind = kind_of_body(request.body);
  if (!kind.ok()) return kind.error();
  RequestContext context;
  if (const auto known = gate_.identify_explained(request, context); !known.ok()) return known.error();
  auto routed = parse_generate(request, kind.value(), intake_.parser_input(context));
  if (!routed.ok()) return routed.error();
  core_.router.refine(routed.value().key);
  const route::PrefixKey& key = routed.value().key;
  const route::Decision decision = core_.router.preview(key, routed.value().model, core_.clock.now());

  bj::array order;
  for (const route::Candidate& c : decision.order.all()) {
    bj::object item;
    item["node"] = core_.fleet.id(c.node);
    item["branch"] = bj::string(route::branch_name(c.branch));
    item["expect_cached_tokens"] = c.expect_cached;
    // The cost in prompt tokens and what it is made of.
    item["cost"] = c.cost;
    item["miss_tokens"] = c.miss;
    item["pending_cost"] = c.load.pending;
    item["load_cost"] = c.load.relative;
    item["evict"] = c.evict;
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
  out["in_table"] =
      !key.set.is_zero() && core_.router.table()->find(key.set, routed.value().model) != nullptr;
  out["set_share"] = core_.router.known().sets.share(key.set);
  out["set_holders"] = route::CachedPrefix(core_.router.known(), key, {}).set_holders();
  out["policy"] = core_.router.options().policy;
  out["mode"] = bj::string(route::mode_name(core_.router.options().affinity.mode));
  out["table_epoch"] = decision.table_epoch;
  out["view_epoch"] = decision.view_epoch;
  out["order"] = std::move(order);
  out["admission"] = admission_.explain(routed.value(), decision, context);
  return to_json(out);
}

}  // namespace troupe
