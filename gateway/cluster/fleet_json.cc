// The workers as an operator sees them (GET /admin/workers).

#include <chrono>

#include "common/json/json.h"
#include "gateway/cluster/fleet.h"

namespace troupe {

using route::NodeIndex;

std::string Fleet::workers_json() const {
  bj::array list;
  for (NodeIndex i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const route::RegisteredNode& node = registered(i);
    if (!node.member()) continue;
    const route::NodeLoad& load = router_.loads().at(i);
    bj::object item;
    item["id"] = node.id;
    item["url"] = node.url;
    item["name"] = name(i);
    item["state"] = bj::string(route::node_state_name(node.state()));
    item["state_for_s"] = nullptr;
    if (node.probed())
      item["state_for_s"] =
          std::chrono::floor<std::chrono::seconds>(clock_.now() - node.health.since()).count();
    item["failures_in_a_row"] = node.health.failures();
    item["failing"] = node.health.failing();
    item["why"] = worker.why.empty() ? bj::value() : bj::value(worker.why);  // the last probe's failure
    bj::array models;
    for (const ModelCard& card : worker.models) models.emplace_back(card.id);
    item["models"] = std::move(models);
    item["in_flight"] = load.in_flight;
    item["pending_tokens"] = load.pending_tokens;
    item["others_requests"] = load.others_requests;
    item["reported_pending_tokens"] = load.reported_pending_tokens;
    item["load"] = nullptr;
    if (worker.load) {
      LoadReport shown = *worker.load;
      shown.sets.clear();  // many, and their sum is in /admin/table
      auto report = parse_json(load_report_json(shown));
      if (report.ok() && report->is_object()) {
        report->as_object().erase("sets");
        item["load"] = *std::move(report);
      }
    }
    bj::object residency;
    residency["in_step"] = router_.known().exact->feeds.in_step(i);
    residency["items"] = router_.known().exact->index.items_of(i);
    item["residency"] = std::move(residency);
    list.emplace_back(std::move(item));
  }
  bj::object out;
  out["view_epoch"] = router_.view().epoch();
  out["workers"] = std::move(list);
  return to_json(out);
}

}  // namespace troupe
