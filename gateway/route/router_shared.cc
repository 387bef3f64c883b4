// The router's part in the state that the gateways of a fleet share.

#include <algorithm>

#include "gateway/route/router.h"

namespace troupe::route {
namespace {

// Sets in a gateway's sample: more personas with a noticeable share each than fleets have.
constexpr size_t kToldSetsMax = 4096;
// Bytes of a table: etcd refuses requests of 1.5 MiB and more. A set takes 40 bytes and 4 for each of its
// homes, so some 30,000 fit; the heaviest stay in.
constexpr size_t kTableBytesMax = 1'400'000;
constexpr size_t kDraftSetsMax = 30'000;

}  // namespace

GatewayNews Router::news() const {
  GatewayNews news;
  news.name = options_.name;
  news.table = table_version();
  if (has_loads_ || options_.shared_table) news.nodes = static_cast<uint32_t>(known_.view->routable_count());
  news.strict_sets = static_cast<uint32_t>(planner_.strict_sets());
  return news;
}

void Router::heard(const GatewayNews& news, TimePoint now) {
  gateways_.heard(this->news(), news, now);
  plans_ = !options_.shared_table && gateways_.plans(this->news(), now);
}

const std::string& Router::table_message() {
  if (message_is_ != table_version()) {
    message_ = encode_plan(planner_.common(), *known_.view);
    message_is_ = table_version();
  }
  return message_;
}

Status Router::adopt_table(std::string_view message) {
  TROUPE_ASSIGN_OR_RETURN(Plan plan, decode_plan(message, *known_.view));
  const SetTable::Origin& origin = plan.table->origin();
  const bool same_kind = (origin.strict_sets == 0) == (planner_.strict_sets() == 0);
  if (!same_kind) tables_of_other_kind_ += 1;
  if (!same_kind || origin.version <= table_version()) return absl::OkStatus();
  message_ = message;
  message_is_ = origin.version;
  plans_ = false;
  known_.table = planner_.follow(fleet(), std::move(plan));
  return absl::OkStatus();
}

Status Router::adopt_sample(const Hash128& gateway, std::string_view message, TimePoint now) {
  TROUPE_ASSIGN_OR_RETURN(SetLoads loads, decode_set_loads(message));
  others_loads_.heard(gateway, std::move(loads), now);
  return absl::OkStatus();
}

std::string Router::loads_message() const {
  return encode_news(news()) + encode_set_loads(sample_, kToldSetsMax);
}

Status Router::adopt_loads_message(const Hash128& gateway, std::string_view message, TimePoint now) {
  if (gateway == options_.name) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const GatewayNews news, decode_news(gateway, message.substr(0, kNewsBytes)));
  TROUPE_RETURN_IF_ERROR(adopt_sample(gateway, message.substr(kNewsBytes), now));
  heard(news, now);
  return absl::OkStatus();
}

std::string Router::draft_table(TimePoint now, bool there_is_one) {
  if (!there_is_one && table_version().epoch > 0) return table_message();
  SetLoads loads = others_loads_.sum(work_.loads(), now);
  if (known_.view->routable_count() == 0) return {};  // seen from here; peers may see more
  for (size_t sets_max = kDraftSetsMax; sets_max > 0 && !loads.sets.empty(); sets_max /= 2) {
    keep_heaviest(loads, sets_max);
    Planner draft = planner_;
    draft.plan(fleet(), loads);
    if (draft.common().table->version() == table_version()) {
      planner_ = std::move(draft);  // it remembers which nodes were there
      known_.table = planner_.table();
      return {};
    }
    std::string message = encode_plan(draft.common(), *known_.view);
    if (message.size() <= kTableBytesMax) return message;
  }
  return {};
}

std::vector<Placement> Router::all_placements(size_t max) const {
  std::vector<Placement> all;
  std::vector<NodeIndex> nodes;
  for (NodeIndex n = 0; n < known_.view->size(); ++n) {
    if (known_.view->routable(n) && relies_on_shadow(n) && known_.shadow.items_of(n) > 0) nodes.push_back(n);
  }
  for (const NodeIndex n : nodes) {
    size_t left = max / nodes.size();
    known_.shadow.for_each_put(n, [&](const ResidencyIndex::Put& put) {
      if (left == 0) return;
      left -= 1;
      Placement placed;
      placed.node = n;
      const auto tokens = static_cast<uint32_t>(put.tokens);
      if (put.kind == Held::kSet) {
        placed.set = put.key;
        placed.set_tokens = tokens;
      } else {
        placed.session = put.key;
        placed.session_tokens = tokens;
        placed.session_charge = static_cast<uint32_t>(put.charge);
      }
      all.push_back(placed);
    });
  }
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace troupe::route
