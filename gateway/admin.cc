#include "gateway/admin.h"

#include "absl/strings/str_cat.h"
#include "common/core/json.h"

namespace troupe {

namespace {

// The methods of a path of this port; empty: there is no such path.
std::string_view methods_of(std::string_view path) {
  if (path == "/admin/explain") return "POST";
  for (const std::string_view known :
       {"/metrics", "/livez", "/readyz", "/health", "/admin/table", "/admin/workers"}) {
    if (path == known) return "GET, HEAD";
  }
  return "";
}

}  // namespace

Task<void> Admin::handle(Exchange& exchange) {
  Page shown = page(exchange.request());
  HeaderList headers;
  headers.emplace_back("content-type", shown.content_type);
  if (!shown.allow.empty()) headers.emplace_back("allow", shown.allow);
  co_await exchange.respond(shown.status, headers, std::move(shown.body));
}

Admin::Page Admin::page(const HttpRequest& request) {
  Page page;
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (get && request.path == "/metrics") {
    page.content_type = "text/plain; version=0.0.4; charset=utf-8";
    page.body = parts_.metrics.text();
  } else if (get && request.path == "/livez") {
    page.body = R"({"status":"ok"})";
  } else if (get && (request.path == "/readyz" || request.path == "/health")) {
    std::tie(page.status, page.body) = parts_.proxy.health();
  } else if (get && request.path == "/admin/table") {
    page.body = table_json();
  } else if (get && request.path == "/admin/workers") {
    page.body = parts_.fleet.workers_json();
  } else if (request.method == "POST" && request.path == "/admin/explain") {
    return explain(request);
  } else {
    ApiError error =
        ApiError::bad_field("", absl::StrCat("there is no ", request.method, " ", request.path,
                                             " on the metrics port; requests go to the main one"));
    page.allow = methods_of(request.path);
    page.status = page.allow.empty() ? 404 : 405;
    error.code = page.allow.empty() ? "not_found" : "method_not_allowed";
    page.body = error.to_json();
  }
  return page;
}

Admin::Page Admin::explain(const HttpRequest& request) {
  Page page;
  auto explained = parts_.proxy.explain(request);
  if (explained.ok()) {
    page.body = std::move(*explained);
  } else {
    page.status = explained.error().http_status;
    page.body = explained.error().to_json();
  }
  return page;
}

std::string Admin::table_json() const {
  const route::SetTable& table = *parts_.router.table();
  bj::array sets;
  for (const auto& [set, homes] : table.sets()) {
    bj::array nodes;
    for (const route::NodeIndex node : homes.nodes()) nodes.emplace_back(parts_.fleet.id(node));
    bj::object item;
    item["set"] = set.hex();
    item["nodes"] = std::move(nodes);
    item["prefix_tokens"] = parts_.router.known().sets.tokens(set);
    sets.emplace_back(std::move(item));
  }
  bj::object out;
  out["epoch"] = table.epoch();
  out["view_epoch"] = parts_.router.view().epoch();
  out["sets"] = std::move(sets);
  return to_json(out);
}

}  // namespace troupe
