#include "gateway/admin.h"

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/net/cors.h"
#include "gateway/proxy/access_gate.h"

namespace troupe {

namespace {

constexpr std::string_view kWorkersPath = "/admin/workers";

constexpr std::string_view kDrainPath = "/admin/workers/{id}/drain";

constexpr std::string_view kUsagePath = "/admin/usage";

constexpr HttpRoute kRoutes[] = {{"GET, HEAD", "/metrics"},
                                 {"GET, HEAD", "/livez"},
                                 {"GET, HEAD", "/readyz"},
                                 {"GET, HEAD", "/health"},
                                 {"GET, HEAD", "/admin/table"},
                                 {"GET, HEAD", kUsagePath},
                                 {"GET, HEAD, POST, DELETE", kWorkersPath},
                                 {"POST", kDrainPath},
                                 {"POST", "/admin/explain"},
                                 {"POST", kGossipPath}};

// The id in /admin/workers/{id}/drain; empty for any other path.
std::string_view drained_id(std::string_view path) {
  constexpr std::string_view kBegin = "/admin/workers/", kEnd = "/drain";
  if (!path.starts_with(kBegin) || !path.ends_with(kEnd) || path.size() <= kBegin.size() + kEnd.size())
    return "";
  return path.substr(kBegin.size(), path.size() - kBegin.size() - kEnd.size());
}

// The methods of a path of this port; empty: unknown path.
std::string_view methods_of(std::string_view path) {
  if (!drained_id(path).empty()) path = kDrainPath;
  for (const HttpRoute& route : kRoutes) {
    if (route.path == path) return route.methods;
  }
  return "";
}

// {"url": "http://host:port"}
ApiResult<Upstream> worker_of(std::string_view body) {
  const auto value = parse_json(body);
  if (!value.ok()) return ApiError::bad_field("", to_std(value.status().message()));
  const bj::object* fields = value->if_object();
  const bj::value* url = fields == nullptr || fields->size() != 1 ? nullptr : fields->if_contains("url");
  if (url == nullptr || !url->is_string()) {
    return ApiError::bad_field("url", "the body must be {\"url\": \"http://host:port\"} and nothing else");
  }
  auto upstream = Upstream::parse(std::string_view(url->as_string()));
  if (!upstream.ok()) {
    return ApiError::bad_field("url", absl::StrCat("'url' must be a worker's, such as http://host:port: ",
                                                   upstream.status().message()));
  }
  return *std::move(upstream);
}

ApiError not_addable(const Endpoint& endpoint, const WorkerUrlRules& rules) {
  ApiError error = ApiError::bad_field(
      "url",
      absl::StrCat("'url' is ", endpoint.authority(), ", which ",
                   rules.is_default()
                       ? "is no address of a private network and no name that only a local one resolves: "
                         "admin.worker_urls_allowed must name it"
                       : "admin.worker_urls_allowed does not allow"));
  error.http_status = 403;
  error.code = "worker_url_not_allowed";
  return error;
}

ApiError unknown_worker(std::string_view id) {
  ApiError error = ApiError::bad_field(
      "", absl::StrCat("there is no worker ", to_absl(id), "; see GET ", to_absl(kWorkersPath)));
  error.http_status = 404;
  error.code = "not_found";
  return error;
}

}  // namespace

Task<void> Admin::handle(Exchange& exchange) {
  Page shown = page(exchange.request());
  HeaderList headers;
  headers.emplace_back("x-request-id", parts_.proxy.request_id(exchange.request()));
  headers.emplace_back("content-type", shown.content_type);
  if (!shown.allow.empty()) headers.emplace_back("allow", shown.allow);
  if (!shown.seal.empty()) headers.emplace_back(kGossipAuthHeader, shown.seal);
  if (shown.status == 401) headers.emplace_back("www-authenticate", "Bearer");
  co_await exchange.respond(shown.status, headers, std::move(shown.body));
}

Admin::Page Admin::page(const HttpRequest& request) {
  const bool get = request.method == "GET" || request.method == "HEAD";
  const std::string_view drained = drained_id(request.path);
  const std::string_view methods = methods_of(request.path);
  if (const auto refused = refusal_of(request)) return failed(*refused);
  if (get && methods.starts_with("GET")) return read(request);
  if (request.method == "POST" && !drained.empty()) return drain_worker(drained);
  if (request.method == "POST" && request.path == "/admin/explain") return explain(request);
  if (request.method == "POST" && request.path == kGossipPath) return gossip(request);
  const bool change = request.method == "POST" || request.method == "DELETE";
  if (change && request.path == kWorkersPath) return change_workers(request);
  ApiError error = ApiError::bad_field("", absl::StrCat("there is no ", request.method, " ", request.path,
                                                        " on the metrics port; requests go to the main one"));
  error.http_status = methods.empty() ? 404 : 405;
  error.code = methods.empty() ? "not_found" : "method_not_allowed";
  Page page = failed(error);
  page.allow = methods;
  return page;
}

std::vector<HttpRoute> Admin::routes() {
  return {std::begin(kRoutes), std::end(kRoutes)};
}

// (A gateway's message has a seal instead of a key, is no JSON, and comes under any name.)
std::optional<ApiError> Admin::refusal_of(const HttpRequest& request) const {
  if (!request.path.starts_with("/admin/")) return std::nullopt;
  if (request.path == kGossipPath) return page_refusal(request, nullptr);
  if (auto foreign = host_refusal(request.header("host"), hosts_)) return foreign;
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  if (auto page = change_refusal(request, nullptr)) return page;
  if (keys_ == nullptr || certified_) return std::nullopt;
  const std::string authorization = authorization_of(request);
  const auto client = keys_->find(authorization);
  if (client == nullptr) return unknown_key(authorization);
  if (client->admin()) return std::nullopt;
  ApiError error = ApiError::bad_field(
      "", absl::StrCat("the API key '", client->name(),
                       "' may not do this: its lines in the file of keys must say `admin: true`"));
  error.http_status = 403;
  error.code = "not_an_admin";
  return error;
}

// Accepts bodies only where they are needed and allowed. (A gossip seal is checked after the message.)
bool Admin::wants_body(const HttpRequest& head) const {
  if (!head.path.starts_with("/admin/") || refusal_of(head)) return false;
  return head.path != kGossipPath || parts_.gossip.may_take(head.header(kGossipAuthHeader));
}

Admin::Page Admin::read(const HttpRequest& request) {
  Page page;
  if (request.path == "/metrics") {
    page.content_type = "text/plain; version=0.0.4; charset=utf-8";
    page.body = parts_.metrics.text();
  } else if (request.path == "/livez") {
    page.body = R"({"status":"ok"})";
  } else if (request.path == "/admin/table") {
    page.body = table_json();
  } else if (request.path == kUsagePath) {
    return usage(request);
  } else if (request.path == kWorkersPath) {
    page.body = parts_.fleet.workers_json();
  } else {
    std::tie(page.status, page.body) = parts_.proxy.health();
  }
  return page;
}

// ?by=key (also without it), user or model.
Admin::Page Admin::usage(const HttpRequest& request) {
  constexpr size_t kRowsShown = 1000;
  const std::string_view target = request.target;
  const size_t query = target.find('?');
  const std::string_view asked = query == std::string_view::npos ? "" : target.substr(query + 1);
  UsageBy by = UsageBy::kKey;
  if (asked == "by=user") by = UsageBy::kEndUser;
  if (asked == "by=model") by = UsageBy::kModel;
  if (by == UsageBy::kKey && !asked.empty() && asked != "by=key")
    return failed(ApiError::bad_field("by", "the query must be by=key, by=user or by=model"));
  Page page;
  if (usage_ != nullptr) page.body = usage_->totals_json(by, kRowsShown);
  if (!page.body.empty()) return page;
  ApiError error = ApiError::bad_field("", "usage is not summed up here: `usage.totals: true` does so");
  error.http_status = 404;
  error.code = "not_found";
  return failed(error);
}

Admin::Page Admin::failed(const ApiError& error) {
  Page page;
  page.status = error.http_status;
  page.body = error.to_json();
  return page;
}

// The answer is the fleet after the change.
Admin::Page Admin::change_workers(const HttpRequest& request) {
  auto upstream = worker_of(request.body);
  if (!upstream.ok()) return failed(upstream.error());
  if (request.method == "POST" && !addable_.allows(upstream->endpoint.host, upstream->endpoint.authority()))
    return failed(not_addable(upstream->endpoint, addable_));
  upstream->refuses_link_local = true;
  if (request.method == "POST") {
    const auto added = parts_.fleet.add(upstream.value());
    if (!added.ok()) return failed(ApiError::unavailable(to_std(added.status().message())));
  } else {
    const std::string id = upstream.value().id();
    const auto node = parts_.fleet.find(id);
    if (!node) return failed(unknown_worker(id));
    parts_.fleet.remove(*node);
  }
  Page page;
  page.body = parts_.fleet.workers_json();
  return page;
}

Admin::Page Admin::drain_worker(std::string_view id) {
  const auto node = parts_.fleet.find(id);
  if (!node) return failed(unknown_worker(id));
  parts_.fleet.drain(*node);
  Page page;
  page.body = parts_.fleet.workers_json();
  return page;
}

Admin::Page Admin::gossip(const HttpRequest& request) {
  Gossip::Received received;
  received.sender = request.header(kGossipSenderHeader);
  received.seal = request.header(kGossipAuthHeader);
  received.stamp = request.header(kGossipStampHeader);
  received.message = request.body;
  auto answer = parts_.gossip.receive(received);
  if (answer.ok()) {
    Page page;
    page.status = answer->is_stale ? 409 : 200;
    page.content_type = "application/octet-stream";
    page.body = std::move(answer->body);
    page.seal = std::move(answer->seal);
    return page;
  }
  const std::string_view why = to_std(answer.status().message());
  if (answer.status().code() == absl::StatusCode::kResourceExhausted)
    return failed(ApiError::unavailable(why));
  ApiError error = ApiError::bad_field("", why);
  if (answer.status().code() == absl::StatusCode::kPermissionDenied) {
    error.http_status = 403;
    error.code = "gossip_not_sealed";
  }
  return failed(error);
}

Admin::Page Admin::explain(const HttpRequest& request) {
  auto explained = parts_.proxy.explain(request);
  if (!explained.ok()) return failed(explained.error());
  Page page;
  page.body = std::move(*explained);
  return page;
}

std::string Admin::table_json() const {
  const route::SetTable& table = *parts_.router.table();
  bj::array sets;
  const auto id_of = [this](route::NodeIndex node) {
    return node == route::kNoNode ? bj::value() : bj::value(parts_.fleet.id(node));
  };
  for (const route::Router::NextHop& hop : parts_.router.next_hops(parts_.clock.now())) {
    bj::array nodes;
    for (const route::NodeIndex node : table.sets().find(hop.set)->second.nodes())
      nodes.emplace_back(parts_.fleet.id(node));
    bj::object item;
    item["set"] = hop.set.hex();
    item["nodes"] = std::move(nodes);
    // The first choices of a new conversation now, which in modes exact and gossip do not follow the table.
    item["first"] = id_of(hop.first);
    item["second"] = id_of(hop.second);
    const std::string persona = parts_.personas.name_of(hop.set);
    item["persona"] = persona.empty() ? bj::value() : bj::value(persona);
    item["prefix_tokens"] = parts_.router.known().sets.tokens(hop.set);
    sets.emplace_back(std::move(item));
  }
  bj::object out;
  out["epoch"] = table.epoch();
  // With several gateways: equal epoch and planner mean the same table. A copy differs from the common one
  // while this gateway knows homes in it to be gone.
  out["planner"] = table.version().planner.hex();
  out["planned_here"] = parts_.router.planning().plans();
  // The number of the gateway that planned; `gateways` shows those that are configured otherwise.
  out["strict_sets"] = table.origin().strict_sets;
  bj::array gateways;
  for (const auto& [name, other] : parts_.router.planning().gateways().others()) {
    bj::object item;
    item["gateway"] = name.hex();
    item["epoch"] = other.announcement.table.epoch;
    item["strict_sets"] = other.announcement.strict_sets;
    gateways.emplace_back(std::move(item));
  }
  out["gateways"] = std::move(gateways);
  out["view_epoch"] = parts_.router.view().epoch();
  out["sets"] = std::move(sets);
  // Pinned sets as reported by the workers (modes exact and strict), at home there or not.
  bj::array pinned;
  for (const auto& [set, nodes] : parts_.residency.pinned()) {
    bj::array ids;
    for (const route::NodeIndex node : nodes) ids.emplace_back(parts_.fleet.id(node));
    bj::object item;
    item["set"] = set.hex();
    item["nodes"] = std::move(ids);
    pinned.emplace_back(std::move(item));
  }
  out["pinned"] = std::move(pinned);
  return to_json(out);
}

}  // namespace troupe
