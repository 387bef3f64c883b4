#include "gateway/proxy/pin_service.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "gateway/proxy/json_patch.h"

namespace troupe {

namespace {

// KV memory of the smallest worker that serves the model; 0: none tells.
int64_t kv_tokens_of(const route::Router& router, std::string_view model) {
  int64_t least = 0;
  for (const route::NodeIndex node : router.view().nodes_for(model)) {
    const int64_t told = router.loads().at(node).report.kv_tokens_total;
    if (told > 0) least = least == 0 ? told : std::min(least, told);
  }
  return least;
}

// With a salt that all gateways can derive.
bool is_salted(const RoutedRequest& routed) {
  return !routed.own_salt && !routed.salt.empty();
}

// Up to the value of ttl_s; of a salted one up to that of cache_salt, which ttl_s would follow (Pin::body).
std::string open_body(std::string_view body, bool salted) {
  constexpr std::string_view kTtl = ",\"ttl_s\":}";
  const JsonPatch last[] = {{"cache_salt", ""}, {"ttl_s", ""}};
  std::string open = with_members(body, std::span(last).subspan(salted ? 0 : 1));
  open.resize(open.size() - (salted ? kTtl.size() : 1));
  return open;
}

}  // namespace

std::string PinService::owner_of(const RequestContext& context) {
  return context.client == nullptr ? "" : context.client->owner();
}

std::vector<route::NodeIndex> PinService::nodes_of(std::string_view id, const RequestContext& context) const {
  std::vector<route::NodeIndex> nodes;
  const auto hash = parse_prefix_id(id);
  const route::Pin* const pin = core_.pins == nullptr || !hash
                                    ? nullptr
                                    : core_.pins->find(route::Pin::id_of(*hash, owner_of(context)));
  if (pin == nullptr) return nodes;
  for (const route::Pin::Place& place : pin->places) {
    if (core_.router.loads().at(place.node).incarnation == place.incarnation) nodes.push_back(place.node);
  }
  return nodes;
}

ApiResult<bool> PinService::allow(const HttpRequest& request, RequestContext& context) const {
  RoutedRequest& routed = context.routed;
  if (core_.pins == nullptr || context.client == nullptr || !routed.pin) return true;
  const auto most_s = std::chrono::duration_cast<std::chrono::seconds>(core_.pins->options().ttl_max).count();
  if (routed.ttl_s.value_or(1) > most_s) {
    return ApiError::bad_field(
        "ttl_s", absl::StrCat("'ttl_s' of a pinned prefix may be at most ", most_s, " (pins.ttl_max_secs)"));
  }
  const std::string owner = owner_of(context);
  route::PinRegistry::Wish wish;
  wish.owner = owner;
  wish.model = routed.model;
  const std::string body = open_body(context.body_for_worker(request), is_salted(routed));
  wish.body = body;
  wish.set = routed.key.set;
  wish.tokens = core_.router.ratio().tokens(routed.key.prompt_bytes);
  wish.kv_tokens = kv_tokens_of(core_.router, routed.model);
  if (const std::string why = core_.pins->refusal(wish); !why.empty()) {
    ApiError error = ApiError::bad_field("pin", why + ". DELETE one, or ask without 'pin'");
    error.http_status = 409;
    error.code = "pin_budget_exceeded";
    return error;
  }
  context.permits.pin = route::PinRegistry::Reservation(*core_.pins, wish);
  if (routed.ttl_s) return true;
  routed.ttl_s = most_s;
  const JsonPatch ttl[] = {{"ttl_s", absl::StrCat(most_s)}};
  context.body = with_members(context.body_for_worker(request), ttl);
  return true;
}

void PinService::keep(const HttpRequest& request, const RequestContext& context, const Made& made) const {
  if (core_.pins == nullptr) return;
  const bj::value* id = made.answer.if_contains("id");
  if (id == nullptr || !id->is_string()) return;
  const auto hash = parse_prefix_id(std::string_view(id->as_string()));
  if (!hash) return;
  const RoutedRequest& routed = context.routed;
  const std::string owner = owner_of(context);
  if (!routed.pin) {
    // (The workers have unpinned it, for others as well.)
    core_.pins->erase(route::Pin::id_of(*hash, owner));
    return core_.pins->unplace(*hash);
  }
  route::Pin pin;
  pin.id = route::Pin::id_of(*hash, owner);
  pin.prefix = *hash;
  pin.owner = owner;
  pin.model = routed.model;
  const bj::value* tokens = made.answer.if_contains("tokens");
  if (tokens != nullptr && tokens->is_int64()) pin.tokens = tokens->as_int64();
  pin.answer = to_json(made.answer);
  pin.shared = !routed.own_salt;
  pin.salted = is_salted(routed);
  pin.body = open_body(context.body_for_worker(request), pin.salted);
  pin.key = routed.key;
  pin.key.anchors.clear();
  pin.expires = routed.ttl_s.has_value();
  pin.until = core_.clock.now() + std::chrono::seconds(routed.ttl_s.value_or(0));
  for (const route::NodeIndex node : made.nodes)
    pin.places.push_back(
        {node, core_.router.loads().at(node).incarnation, pin.expires ? pin.until : TimePoint::max()});
  for (const route::Pin::Place& place : pin.places) core_.pins->update_expiry(*hash, place);
  if (!core_.pins->put(std::move(pin)))
    core_.log.warn("pin_not_kept", {{"prefix", prefix_id(*hash)}, {"why", "pins.text_bytes"}});
}

bool PinService::erase(std::string_view id, const RequestContext& context) const {
  const auto hash = parse_prefix_id(id);
  if (core_.pins == nullptr || !hash) return false;
  const Hash128 own = route::Pin::id_of(*hash, owner_of(context));
  const bool known = core_.pins->find(own) != nullptr;
  core_.pins->erase(own);  // (Other gateways may know of it that this one has not heard of yet.)
  return known;
}

PinService::Holders PinService::holders(std::string_view id, const RequestContext& context) const {
  const auto hash = parse_prefix_id(id);
  if (core_.pins == nullptr || !hash) return {};
  const std::string owner = owner_of(context);
  return {core_.pins->find(route::Pin::id_of(*hash, owner)) != nullptr,
          core_.pins->is_of_another(*hash, owner)};
}

std::string PinService::list(const RequestContext& context, const Replies& replies) const {
  bj::array pins;
  if (core_.pins != nullptr) {
    core_.pins->expire(core_.clock.now());
    for (const route::Pin* pin : core_.pins->of(owner_of(context))) {
      auto answer = parse_json(pin->answer);
      if (!answer.ok() || !answer->is_object()) continue;
      bj::array nodes;
      for (const route::Pin::Place& place : pin->places) {
        if (core_.router.loads().at(place.node).incarnation != place.incarnation) continue;  // it has lost it
        bj::object node;
        node["node"] = replies.node_name(context, place.node);
        nodes.emplace_back(std::move(node));
      }
      answer->as_object()["nodes"] = std::move(nodes);
      pins.emplace_back(std::move(*answer));
    }
  }
  bj::object body;
  body["object"] = "list";
  body["data"] = std::move(pins);
  return to_json(body);
}

}  // namespace troupe
