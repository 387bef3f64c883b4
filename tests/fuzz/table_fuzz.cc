// State that gateways write into etcd for each other and send each other: the table, a sample of loads,
// announcements, and the message that holds such parts. Any bytes are decoded or refused by name; what was
// decoded says the same when it is encoded and decoded again.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/placement/gossip.h"
#include "gateway/route/placement/table_codec.h"

namespace {

using namespace troupe;
using route::ClusterView;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void check_refusal(const Status& status) {
  require(status.message().substr(0, 7) == "gossip:", "a refusal says what is wrong");
}

bool same_sets(const route::SetLoads& a, const route::SetLoads& b) {
  if (a.sets.size() != b.sets.size()) return false;
  for (size_t i = 0; i < a.sets.size(); ++i) {
    const route::SetLoad &x = a.sets[i], &y = b.sets[i];
    if (x.set != y.set || x.work != y.work || x.tokens != y.tokens || x.model != y.model) return false;
  }
  return true;
}

void check_loads(const route::SetLoads& loads) {
  for (const route::SetLoad& load : loads.sets)
    require(std::isfinite(load.work) && load.work >= 0 && load.tokens >= 0, "loads are numbers to add up");
}

void check_plan(std::string_view bytes, const ClusterView& view) {
  const auto plan = route::decode_plan(bytes, view);
  if (!plan.ok()) return check_refusal(plan.status());
  check_loads(plan->loads);
  require(plan->table->epoch() > 0 && plan->known.size() == view.size(), "a plan is whole");
  for (const auto& [set, homes] : plan->table->sets()) {
    require(homes.size() > 0 && homes.size() <= view.size(), "a set's homes are known nodes, each once");
    for (const route::NodeIndex node : homes.nodes()) require(node < view.size(), "a home is a known node");
  }
  const auto again = route::decode_plan(route::encode_plan(*plan, view), view);
  require(again.ok() && !again->partial, "what was decoded is encoded");
  require(again->table->version() == plan->table->version() &&
              again->table->origin().loads_epoch == plan->table->origin().loads_epoch &&
              again->table->origin().strict_sets == plan->table->origin().strict_sets &&
              again->table->sets() == plan->table->sets() && again->known == plan->known &&
              again->joining == plan->joining && again->loads.epoch == plan->loads.epoch &&
              same_sets(again->loads, plan->loads),
          "a plan comes back as it was");
}

void check_sample(std::string_view bytes) {
  const auto loads = route::decode_set_loads(bytes);
  if (!loads.ok()) return check_refusal(loads.status());
  check_loads(*loads);
  const auto again = route::decode_set_loads(route::encode_set_loads(*loads, loads->sets.size()));
  require(again.ok() && again->epoch == 0 && same_sets(*again, *loads), "loads come back as they were");
  constexpr size_t kFew = 2;
  const auto few = route::decode_set_loads(route::encode_set_loads(*loads, kFew));
  require(few.ok() && few->sets.size() <= kFew, "so many are kept");
}

void check_announcement(std::string_view bytes) {
  const Hash128 name{7, 9};
  const auto announcement = route::decode_announcement(name, bytes);
  if (!announcement.ok()) return check_refusal(announcement.status());
  require(announcement->name == name && bytes.size() == route::kNewsBytes &&
              route::encode_announcement(*announcement) == bytes,
          "announcements have one form");
}

void check_message(std::string_view bytes, const ClusterView& view) {
  const auto parts = route::unframe_gossip(bytes);
  if (!parts.ok()) return check_refusal(parts.status());
  require(route::frame_gossip(*parts) == bytes, "a message has one form");
  (void)route::decode_placements(parts->placements, view);
  (void)route::decode_ledger(parts->ledger, view);
  check_announcement(parts->announcement);
  check_plan(parts->table, view);
  check_sample(parts->sample);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<route::NodeView> nodes(3);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].id = "node-" + std::to_string(i);
  const ClusterView view(1, nodes);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_plan(bytes, view);
  check_plan(bytes, ClusterView());
  check_sample(bytes);
  check_announcement(bytes);
  check_message(bytes, view);
  return 0;
}
