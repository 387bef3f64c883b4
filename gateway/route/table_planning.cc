#include "gateway/route/table_planning.h"

#include <utility>

#include "gateway/route/placement/table_codec.h"

namespace troupe::route {
namespace {

// Sets in a gateway's sample: more personas with a noticeable share each than fleets have.
constexpr size_t kMessageSetsMax = 4096;
// Bytes of a table: etcd refuses requests of 1.5 MiB and more. A set takes 40 bytes and 4 for each of its
// homes, so some 30,000 fit; the heaviest stay in.
constexpr size_t kTableBytesMax = 1'400'000;
constexpr size_t kDraftSetsMax = 30'000;

}  // namespace

TablePlanning::TablePlanning(RouterCore& core)
    : options_(core.options),
      known_(core.known),
      planner_(core.options.planner, core.options.affinity.mode, core.options.name),
      own_(core.options.memory.sets_max, core.options.planner.half_life, core.options.affinity.share_tick),
      others_loads_(3 * core.options.planner.tick + Gateways::kSilence),
      plans_(!core.options.shared_table) {}

// The table that counts stays as it is for the other gateways: it is kept by names, which only the outgoing
// view can resolve.
void TablePlanning::remove_nodes(std::span<const NodeIndex> nodes) {
  table_message();
  planner_.remove_nodes(nodes);
  known_.table = planner_.table();
}

void TablePlanning::view_changed() {
  if (plans_) {
    known_.table = planner_.replace_gone(fleet());
    return;
  }
  known_.table = planner_.patch(fleet());
  // The new view may have a node that the table names.
  if (!planner_.common().partial) return;
  if (auto plan = decode_plan(message_, *known_.view); plan.ok())
    known_.table = planner_.follow(fleet(), *std::move(plan));
}

bool TablePlanning::leave_home(const Hash128& set, std::string_view model, std::span<const NodeIndex> asked) {
  if (!planner_.leave_home(fleet(), {set, model, asked, plans_})) return false;
  known_.table = planner_.table();
  return true;
}

Planner::Fleet TablePlanning::fleet() {
  kv_tokens_.resize(known_.view->size());
  for (NodeIndex n = 0; n < kv_tokens_.size(); ++n) kv_tokens_[n] = known_.loads.at(n).report.kv_tokens_total;
  return {*known_.view, kv_tokens_};
}

void TablePlanning::plan(TimePoint now) {
  own_.use(true);
  if (own_.work().size() == 0 && others_loads_.empty()) return;  // the first sets are planned for at once
  if (planned_at_ != TimePoint{} && now < planned_at_ + options_.planner.tick) return;
  SetLoads loads = own_.loads();
  if (known_.gateways > 1 || options_.shared_table) {
    own_.take(loads);
  }
  if (known_.gateways > 1) {
    loads = others_loads_.sum(std::move(loads), now);
  }
  plan_from(std::move(loads), now);
}

void TablePlanning::plan(TimePoint now, SetLoads loads) {
  own_.use(false);
  plan_from(std::move(loads), now);
}

void TablePlanning::plan_from(SetLoads loads, TimePoint now) {
  planned_at_ = now;
  has_loads_ = !loads.sets.empty();
  plans_ = !options_.shared_table && gateways_.plans(announcement(), now);
  known_.table = plans_ ? planner_.plan(fleet(), std::move(loads)) : planner_.patch(fleet());
}

GatewayAnnouncement TablePlanning::announcement() const {
  GatewayAnnouncement announcement;
  announcement.name = options_.name;
  announcement.table = version();
  if (has_loads_ || options_.shared_table)
    announcement.nodes = static_cast<uint32_t>(known_.view->routable_count());
  announcement.strict_sets = static_cast<uint32_t>(planner_.strict_sets());
  return announcement;
}

void TablePlanning::observe(const GatewayAnnouncement& announcement, TimePoint now) {
  gateways_.observe(this->announcement(), announcement, now);
  plans_ = !options_.shared_table && gateways_.plans(this->announcement(), now);
}

const std::string& TablePlanning::table_message() {
  if (message_is_ != version()) {
    message_ = encode_plan(planner_.common(), *known_.view);
    message_is_ = version();
  }
  return message_;
}

Status TablePlanning::adopt_table(std::string_view message) {
  TROUPE_ASSIGN_OR_RETURN(Plan plan, decode_plan(message, *known_.view));
  const SetTable::Origin& origin = plan.table->origin();
  const bool same_kind = (origin.strict_sets == 0) == (planner_.strict_sets() == 0);
  if (!same_kind) tables_of_other_kind_ += 1;
  if (!same_kind || origin.version <= version()) return absl::OkStatus();
  message_ = message;
  message_is_ = origin.version;
  plans_ = false;
  known_.table = planner_.follow(fleet(), std::move(plan));
  return absl::OkStatus();
}

Status TablePlanning::adopt_sample(const Hash128& gateway, std::string_view message, TimePoint now) {
  TROUPE_ASSIGN_OR_RETURN(SetLoads loads, decode_set_loads(message));
  others_loads_.observe(gateway, std::move(loads), now);
  return absl::OkStatus();
}

std::string TablePlanning::loads_message() const {
  return encode_announcement(announcement()) + own_.message(kMessageSetsMax);
}

Status TablePlanning::adopt_loads_message(const Hash128& gateway, std::string_view message, TimePoint now) {
  if (gateway == options_.name) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const GatewayAnnouncement announcement,
                          decode_announcement(gateway, message.substr(0, kNewsBytes)));
  TROUPE_RETURN_IF_ERROR(adopt_sample(gateway, message.substr(kNewsBytes), now));
  observe(announcement, now);
  return absl::OkStatus();
}

std::string TablePlanning::draft_table(TimePoint now, bool there_is_one) {
  if (!there_is_one && version().epoch > 0) return table_message();
  SetLoads loads = others_loads_.sum(own_.loads(), now);
  if (known_.view->routable_count() == 0) return {};  // seen from here; peers may see more
  for (size_t sets_max = kDraftSetsMax; sets_max > 0 && !loads.sets.empty(); sets_max /= 2) {
    keep_heaviest(loads, sets_max);
    Planner draft = planner_;
    draft.plan(fleet(), loads);
    if (draft.common().table->version() == version()) {
      planner_ = std::move(draft);  // it remembers which nodes were there
      known_.table = planner_.table();
      return {};
    }
    std::string message = encode_plan(draft.common(), *known_.view);
    if (message.size() <= kTableBytesMax) return message;
  }
  return {};
}

}  // namespace troupe::route
