#include "gateway/route/placement/table_codec.h"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/route/placement/wire.h"

namespace troupe::route {

using wire::put;
using wire::put_hash;

namespace {

constexpr std::string_view kAnnouncementMagic = "TPN1";
constexpr std::string_view kPlanMagic = "TPT1";
constexpr uint64_t kEpochMax = uint64_t{1} << 48;
constexpr int64_t kTokensMax = int64_t{1} << 40;
constexpr size_t kModelBytesMax = 1024;
// Least bytes of each record.
constexpr size_t kModelBytes = 4, kNodeBytes = 8 + 4, kSetBytes = 16 + 8 + 8 + 4 + 4;

// Takes numbers while there are any; then zeros, and `over` stays true.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <typename T>
  T take() {
    if (!has(sizeof(T))) return T{};
    return wire::take<T>(in_);
  }
  Hash128 take_hash() {
    if (!has(16)) return {};
    return wire::take_hash(in_);
  }
  std::string_view take_bytes(size_t count) {
    if (!has(count)) return {};
    const std::string_view bytes = in_.substr(0, count);
    in_.remove_prefix(count);
    return bytes;
  }
  // A count of things of at least that many bytes each; 0 where so many cannot follow.
  size_t take_count(size_t bytes_each) {
    const size_t count = take<uint32_t>();
    if (count <= in_.size() / bytes_each) return count;
    over = true;
    return 0;
  }
  size_t left() const { return in_.size(); }
  bool over = false;

 private:
  bool has(size_t bytes) {
    over |= in_.size() < bytes;
    return !over;
  }
  std::string_view in_;
};

template <typename... Parts>
Status refused(const Parts&... parts) {
  return invalid_argument(absl::StrCat("gossip: table.", parts...));
}

Status check_version(const TableVersion& version) {
  if (version.epoch > kEpochMax) return refused("epoch: ", version.epoch, " is more than ", kEpochMax);
  return absl::OkStatus();
}

void put_version(std::string& out, const TableVersion& version) {
  put(out, version.epoch);
  put_hash(out, version.planner);
}

TableVersion take_version(Reader& in) {
  TableVersion version;
  version.epoch = in.take<uint64_t>();
  version.planner = in.take_hash();
  return version;
}

struct Node {
  NodeIndex slot = kNoNode;  // of this gateway
  uint32_t seen_by = 0;      // the set that named it last, counted from 1
};

// Decodes one plan.
class PlanReader {
 public:
  PlanReader(std::string_view bytes, const ClusterView& view) : in_(bytes), view_(view) {}

  StatusOr<Plan> read() {
    origin_.version = take_version(in_);
    TROUPE_RETURN_IF_ERROR(check_version(origin_.version));
    if (origin_.version.epoch == 0 && !in_.over) return refused("epoch: a table that was planned has one");
    plan_.loads.epoch = origin_.loads_epoch = in_.take<uint64_t>();
    origin_.strict_sets = in_.take<uint32_t>();
    plan_.joining = in_.take<uint32_t>() != 0;
    TROUPE_RETURN_IF_ERROR(read_models());
    TROUPE_RETURN_IF_ERROR(read_nodes());
    TROUPE_RETURN_IF_ERROR(read_sets());
    if (in_.over) return invalid_argument("gossip: table: the message is cut off");
    if (in_.left() > 0) return invalid_argument("gossip: table: more bytes than the table has");
    plan_.table = std::make_shared<SetTable>(origin_, std::move(sets_));
    return std::move(plan_);
  }

 private:
  Status read_models() {
    const size_t count = in_.take_count(kModelBytes);
    for (size_t i = 0; i < count; ++i) {
      const size_t bytes = in_.take<uint32_t>();
      if (bytes > kModelBytesMax)
        return refused("models[", i, "]: ", bytes, " bytes, and ", kModelBytesMax, " at most are read");
      models_.emplace_back(in_.take_bytes(bytes));
    }
    return absl::OkStatus();
  }

  Status read_nodes() {
    const size_t count = in_.take_count(kNodeBytes);
    const auto slots = wire::slots_of(view_);
    absl::flat_hash_set<uint64_t> named;
    plan_.known.assign(view_.size(), false);
    nodes_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const auto name = in_.take<uint64_t>();
      const bool known = in_.take<uint32_t>() != 0;
      if (!named.insert(name).second) return refused("nodes[", i, "]: is there twice");
      const auto slot = slots.find(name);
      if (slot == slots.end()) continue;
      nodes_[i].slot = slot->second;
      plan_.known[slot->second] = known;
    }
    return absl::OkStatus();
  }

  Status read_sets() {
    const size_t count = in_.take_count(kSetBytes);
    plan_.loads.sets.reserve(count);
    sets_.reserve(count);
    absl::flat_hash_set<Hash128> named;
    named.reserve(count);
    for (size_t i = 0; i < count && !in_.over; ++i) {
      TROUPE_RETURN_IF_ERROR(read_set(i));
      if (!in_.over && !named.insert(plan_.loads.sets.back().set).second)
        return refused("sets[", i, "].set: is there twice");
    }
    return absl::OkStatus();
  }

  Status read_set(size_t i) {
    SetLoad load;
    load.set = in_.take_hash();
    load.work = in_.take<double>();
    load.tokens = in_.take<int64_t>();
    const auto model = in_.take<uint32_t>();
    const size_t homes = in_.take_count(sizeof(uint32_t));
    if (in_.over) return absl::OkStatus();  // reported once, at the end
    if (!std::isfinite(load.work) || load.work < 0) return refused("sets[", i, "].work: must be 0 or more");
    if (load.tokens < 0 || load.tokens > kTokensMax)
      return refused("sets[", i, "].tokens: ", load.tokens, " is not from 0 to ", kTokensMax);
    if (model >= models_.size())
      return refused("sets[", i, "].model: ", model, " of ", models_.size(), " models");
    load.model = models_[model];
    Homes known;
    for (size_t h = 0; h < homes; ++h) {
      const auto node = in_.take<uint32_t>();
      if (node >= nodes_.size())
        return refused("sets[", i, "].homes: node ", node, " of ", nodes_.size(), " nodes");
      if (std::exchange(nodes_[node].seen_by, static_cast<uint32_t>(i + 1)) == i + 1)
        return refused("sets[", i, "].homes: node ", node, " is there twice");
      if (nodes_[node].slot != kNoNode) known.push_back(nodes_[node].slot);
    }
    plan_.partial |= known.size() < homes;
    if (known.size() > 0) sets_.emplace(load.set, std::move(known));
    plan_.loads.sets.push_back(std::move(load));
    return absl::OkStatus();
  }

  Reader in_;
  const ClusterView& view_;
  Plan plan_;
  SetTable::Origin origin_;
  SetTable::Map sets_;
  std::vector<std::string> models_;
  std::vector<Node> nodes_;
};

}  // namespace

std::string encode_plan(const Plan& plan, const ClusterView& view) {
  const SetTable& table = *plan.table;
  std::string out(kPlanMagic);
  put_version(out, table.version());
  put(out, table.origin().loads_epoch);
  put(out, static_cast<uint32_t>(table.origin().strict_sets));
  put(out, uint32_t{plan.joining});

  absl::flat_hash_map<std::string, uint32_t> models;
  for (const SetLoad& load : plan.loads.sets)
    models.emplace(load.model, static_cast<uint32_t>(models.size()));
  std::vector<std::string_view> names(models.size());
  for (const auto& [name, index] : models) names[index] = name;
  put(out, static_cast<uint32_t>(names.size()));
  for (const std::string_view name : names) {
    put(out, static_cast<uint32_t>(name.size()));
    out += name;
  }

  put(out, static_cast<uint32_t>(view.size()));
  for (NodeIndex n = 0; n < view.size(); ++n) {
    put(out, view.node(n).hash.lo);
    put(out, uint32_t{n < plan.known.size() && plan.known[n]});
  }

  put(out, static_cast<uint32_t>(plan.loads.sets.size()));
  for (const SetLoad& load : plan.loads.sets) {
    put_hash(out, load.set);
    put(out, load.work);
    put(out, load.tokens);
    put(out, models.find(load.model)->second);
    const auto found = table.sets().find(load.set);
    put(out, static_cast<uint32_t>(found == table.sets().end() ? 0 : found->second.size()));
    if (found == table.sets().end()) continue;
    for (const NodeIndex node : found->second.nodes()) put(out, node);
  }
  return out;
}

StatusOr<Plan> decode_plan(std::string_view message, const ClusterView& view) {
  if (!message.starts_with(kPlanMagic))
    return invalid_argument(absl::StrCat("gossip: a table begins with ", to_absl(kPlanMagic)));
  return PlanReader(message.substr(kPlanMagic.size()), view).read();
}

void keep_heaviest(SetLoads& loads, size_t sets_max) {
  if (loads.sets.size() <= sets_max) return;
  const auto kept = loads.sets.begin() + static_cast<ptrdiff_t>(sets_max);
  const auto heavier = [](const SetLoad& a, const SetLoad& b) {
    return a.work != b.work ? a.work > b.work : a.set < b.set;
  };
  std::nth_element(loads.sets.begin(), kept, loads.sets.end(), heavier);
  loads.sets.erase(kept, loads.sets.end());
}

// Loads travel as a plan in which no set has a home.
std::string encode_set_loads(SetLoads loads, size_t sets_max) {
  keep_heaviest(loads, sets_max);
  SetTable::Origin origin;
  origin.version.epoch = 1;
  Plan plan;
  plan.table = std::make_shared<SetTable>(origin, SetTable::Map());
  plan.loads = std::move(loads);
  return encode_plan(plan, ClusterView());
}

StatusOr<SetLoads> decode_set_loads(std::string_view message) {
  TROUPE_ASSIGN_OR_RETURN(Plan plan, decode_plan(message, ClusterView()));
  return std::move(plan.loads);
}

std::string encode_announcement(const GatewayAnnouncement& announcement) {
  std::string out(kAnnouncementMagic);
  put_version(out, announcement.table);
  put(out, announcement.nodes);
  put(out, announcement.strict_sets);
  return out;
}

StatusOr<GatewayAnnouncement> decode_announcement(const Hash128& name, std::string_view message) {
  if (!message.starts_with(kAnnouncementMagic))
    return invalid_argument(
        absl::StrCat("gossip: a gateway's announcement begins with ", to_absl(kAnnouncementMagic)));
  Reader in(message.substr(kAnnouncementMagic.size()));
  GatewayAnnouncement announcement;
  announcement.name = name;
  announcement.table = take_version(in);
  announcement.nodes = in.take<uint32_t>();
  announcement.strict_sets = in.take<uint32_t>();
  if (in.over || in.left() > 0)
    return invalid_argument("gossip: a gateway's announcement is of another length");
  TROUPE_RETURN_IF_ERROR(check_version(announcement.table));
  return announcement;
}

}  // namespace troupe::route
