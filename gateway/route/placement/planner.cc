#include "gateway/route/placement/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>

namespace troupe::route {
namespace {

// The strict sets of a model, with the summed loads of their keys.
std::vector<SetLoad> strict_loads(const std::string& model, std::span<const SetLoad* const> keys,
                                  size_t strict_sets) {
  std::vector<SetLoad> strict(strict_sets);
  for (size_t i = 0; i < strict_sets; ++i) {
    strict[i].set = SetTable::strict_name(model, i);
    strict[i].model = model;
  }
  for (const SetLoad* key : keys) strict[SetTable::strict_number(key->set, strict_sets)].work += key->work;
  return strict;
}

std::map<std::string, std::vector<const SetLoad*>> by_model(const SetLoads& loads) {
  std::map<std::string, std::vector<const SetLoad*>> models;
  for (const SetLoad& load : loads.sets) models[load.model].push_back(&load);
  return models;
}

SetLoads strict_loads(const SetLoads& keys, size_t strict_sets) {
  SetLoads loads;
  loads.epoch = keys.epoch;
  for (const auto& [model, its] : by_model(keys)) {
    for (SetLoad& load : strict_loads(model, its, strict_sets)) loads.sets.push_back(std::move(load));
  }
  return loads;
}

}  // namespace

// Builds one table. It takes the sets model by model, the heaviest first, and books all homes that stay
// before any new one, so that a new home never pushes out an old one.
class Planner::Draft {
 public:
  Draft(const PlannerOptions& options, const Fleet& fleet, const SetTable& old, size_t strict_sets)
      : options_(options), view_(fleet.view), old_(old), strict_sets_(strict_sets) {
    nodes_.resize(view_.size());
    for (NodeIndex n = 0; n < nodes_.size(); ++n) {
      nodes_[n].hash = view_.node(n).hash.lo;
      nodes_[n].weight = view_.node(n).weight;
      const int64_t kv = n < fleet.kv_tokens.size() ? fleet.kv_tokens[n] : 0;
      if (kv > 0) nodes_[n].room = options_.kv_share * static_cast<double>(kv);
    }
  }

  // Replaces only homes that are gone.
  bool gone_only = false;
  // Share of the load that a join may move; infinite without a recent join.
  double move_budget_share = std::numeric_limits<double>::infinity();
  bool held_back = false;

  void plan_model(const std::string& model, std::vector<const SetLoad*> loads) {
    serving_ = view_.homes_for(model);
    if (serving_.empty()) return;
    // The order never depends on a pointer, a map's order or arrival: gateways must agree.
    std::sort(loads.begin(), loads.end(), [](const SetLoad* a, const SetLoad* b) {
      return a->work != b->work ? a->work > b->work : a->set < b->set;
    });
    weigh(loads);
    std::vector<Item> items;
    items.reserve(loads.size());
    for (const SetLoad* load : loads) items.push_back(item_of(*load));
    if (strict_sets_ > 0) apportion(items);
    for (Item& item : items) keep(item);
    for (Item& item : items) fill(item);
    for (Item& item : items) {
      if (item.homes.size() > 0) sets.emplace(item.load->set, std::move(item.homes));
    }
  }

  SetTable::Map sets;
  uint64_t moved = 0;

 private:
  struct Node {
    uint64_t hash = 0;
    double weight = 1;
    double planned = 0;
    double room = std::numeric_limits<double>::infinity();  // tokens left of the KV budget
    size_t sets = 0;
  };
  struct Item {
    const SetLoad* load = nullptr;
    const Homes* old = nullptr;
    size_t copies = 0;
    double part = 0;  // of its load, on each copy
    Homes homes;
  };

  void weigh(const std::vector<const SetLoad*>& loads) {
    total_ = 0;
    for (const SetLoad* load : loads) total_ += load->work;
    double weight = 0;
    slots_ = 0;
    for (const NodeIndex n : serving_) {
      weight += nodes_[n].weight;
      slots_ += options_.max_sets_per_node - std::min(options_.max_sets_per_node, nodes_[n].sets);
    }
    mean_ = total_ / weight;  // for a node of weight 1
    move_budget_ = total_ > 0 ? move_budget_share * total_ : 0;
  }

  Item item_of(const SetLoad& load) const {
    Item item;
    item.load = &load;
    const auto found = old_.sets().find(load.set);
    if (found != old_.sets().end()) item.old = &found->second;
    const size_t current = item.old == nullptr ? 0 : item.old->size();
    const double share = total_ > 0 ? load.work / total_ : 0;
    const double wanted = share * static_cast<double>(serving_.size());
    const auto whole = [](double copies) { return static_cast<size_t>(std::max(std::ceil(copies), 1.0)); };
    const size_t least = wanted >= options_.warm_second_share ? 2 : 1;
    size_t copies = std::max(whole(wanted), least);
    if (copies < current && std::max(whole(options_.shrink_slack * wanted), least) >= current)
      copies = current;
    if (gone_only && current > 0) copies = current;
    set_copies(item, std::min(copies, most_copies()));
    return item;
  }

  size_t most_copies() const {
    return options_.max_nodes_per_set > 0 ? std::min(options_.max_nodes_per_set, serving_.size())
                                          : serving_.size();
  }

  static void set_copies(Item& item, size_t copies) {
    item.copies = copies;
    item.part = copies > 0 ? item.load->work / static_cast<double>(copies) : 0;
  }

  // Strict: gives out all places, in proportion to load, one to each set first. Places given out before stay
  // unless the heaviest part could be clearly lighter: a set that moves is computed anew.
  void apportion(std::vector<Item>& items) {
    const double least_load = total_ > 0 ? 0.01 * total_ / static_cast<double>(items.size()) : 1;
    const auto part = [&](size_t i, size_t copies) {
      return (items[i].load->work + least_load) / static_cast<double>(copies);
    };
    std::vector<size_t> ideal(items.size(), 0);
    size_t given = 0;
    std::priority_queue<std::pair<double, size_t>> heaviest;  // part, and the set counted from the last
    for (size_t i = 0; i < items.size() && given < slots_; ++i) {
      ideal[i] = 1;
      given += 1;
      if (most_copies() > 1) heaviest.emplace(part(i, 1), items.size() - i);
    }
    for (; given < slots_ && !heaviest.empty(); ++given) {
      const size_t i = items.size() - heaviest.top().second;
      heaviest.pop();
      ideal[i] += 1;
      if (ideal[i] < most_copies()) heaviest.emplace(part(i, ideal[i]), items.size() - i);
    }
    size_t held = 0;
    double heaviest_held = 0, heaviest_ideal = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const size_t copies = items[i].old == nullptr ? 0 : items[i].old->size();
      if (copies == 0 && ideal[i] > 0) heaviest_held = std::numeric_limits<double>::infinity();
      held += copies;
      if (copies > 0) heaviest_held = std::max(heaviest_held, part(i, copies));
      if (ideal[i] > 0) heaviest_ideal = std::max(heaviest_ideal, part(i, ideal[i]));
    }
    const bool stays = held == given && heaviest_held <= options_.shrink_slack * heaviest_ideal;
    for (size_t i = 0; i < items.size(); ++i)
      set_copies(items[i], stays ? items[i].old == nullptr ? 0 : items[i].old->size() : ideal[i]);
  }

  bool may_be_home(const Node& node, const Item& item) const {
    if (strict_sets_ > 0 && node.sets >= options_.max_sets_per_node) return false;
    return node.room >= static_cast<double>(item.load->tokens);
  }

  void book(NodeIndex n, Item& item) {
    nodes_[n].planned += item.part;
    nodes_[n].room -= static_cast<double>(item.load->tokens);
    nodes_[n].sets += 1;
    item.homes.push_back(n);
  }

  void keep(Item& item) {
    if (item.old == nullptr) return;
    for (const NodeIndex n : item.old->nodes()) {
      if (item.homes.size() == item.copies) return;
      if (!std::binary_search(serving_.begin(), serving_.end(), n)) continue;
      const Node& node = nodes_[n];
      if (!may_be_home(node, item)) continue;
      // Strict sets are few and large: moving one for a better balance costs more than the balance is worth.
      const bool too_much =
          strict_sets_ == 0 && node.planned + item.part > options_.keep_load * mean_ * node.weight;
      if (too_much && !gone_only) {
        if (item.part <= move_budget_) {
          move_budget_ -= item.part;
          continue;
        }
        held_back = true;
      }
      book(n, item);
    }
  }

  // Prefers nodes with room, in rendezvous order, then the least planned.
  void fill(Item& item) {
    const size_t missing = item.copies - item.homes.size();
    if (missing == 0) return;
    ranked_.clear();
    for (const NodeIndex n : serving_) {
      const Node& node = nodes_[n];
      if (!may_be_home(node, item) || (item.homes.size() > 0 && item.homes.contains(n))) continue;
      const bool fits = node.planned + item.part <= options_.fill_load * mean_ * node.weight;
      const double draw = rendezvous_draw(item.load->set.lo, node.hash);
      const double score = rendezvous_score(draw, node.weight, view_.equal_weights());
      ranked_.push_back(Ranked{fits ? 0 : node.planned / node.weight + 1e-300, score, n});
    }
    const size_t count = std::min(missing, ranked_.size());
    const auto better = [](const Ranked& a, const Ranked& b) {
      if (a.over != b.over) return a.over < b.over;
      return a.score != b.score ? a.score > b.score : a.node < b.node;
    };
    std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<long>(count), ranked_.end(), better);
    for (size_t i = 0; i < count; ++i) book(ranked_[i].node, item);
    moved += count;
  }

  struct Ranked {
    double over = 0;  // 0: fits
    double score = 0;
    NodeIndex node = kNoNode;
  };

  const PlannerOptions& options_;
  const ClusterView& view_;
  const SetTable& old_;
  size_t strict_sets_;
  std::span<const NodeIndex> serving_;
  std::vector<Node> nodes_;
  std::vector<Ranked> ranked_;
  double total_ = 0;
  double mean_ = 0;
  double move_budget_ = 0;
  size_t slots_ = 0;
};

Planner::Planner(const PlannerOptions& options, Mode mode, Hash128 name)
    : options_(options), mode_(mode), name_(name), table_(plan_.table) {
  options_.strict_sets = std::max<size_t>(options_.strict_sets, 1);
  options_.max_sets_per_node = std::max<size_t>(options_.max_sets_per_node, 1);
}

void Planner::change(PlannerOptions options) {
  options.strict_sets = options_.strict_sets;
  options.max_sets_per_node = std::max<size_t>(options.max_sets_per_node, 1);
  options_ = options;
}

std::shared_ptr<const SetTable> Planner::plan(const Fleet& fleet, SetLoads loads) {
  std::vector<bool>& known = plan_.known;
  const bool first = known.empty();
  for (NodeIndex n = 0; n < fleet.view.size(); ++n) {
    const bool joined = n >= known.size() || !known[n];
    plan_.joining |= !first && joined && fleet.view.may_be_home(n);
  }
  plan_.loads = strict_sets() > 0 ? strict_loads(loads, strict_sets()) : std::move(loads);
  Draft draft(options_, fleet, *table_, strict_sets());
  if (plan_.joining) draft.move_budget_share = options_.join_move_share;
  draw(fleet, draft, strict_sets());
  plan_.joining = plan_.joining && draft.held_back;
  known.assign(fleet.view.size(), false);
  for (NodeIndex n = 0; n < fleet.view.size(); ++n) known[n] = fleet.view.may_be_home(n);
  copies_moved_ += draft.moved;
  return commit(std::move(draft.sets), strict_sets());
}

std::shared_ptr<const SetTable> Planner::replace_gone(const Fleet& fleet) {
  Draft draft(options_, fleet, *table_, sets_in_force());
  draft.gone_only = true;
  // A node that is gone counts as a joining one when it returns.
  std::vector<bool>& known = plan_.known;
  for (NodeIndex n = 0; n < known.size(); ++n) known[n] = known[n] && fleet.view.may_be_home(n);
  draw(fleet, draft, sets_in_force());
  copies_moved_ += draft.moved;
  return commit(std::move(draft.sets), sets_in_force());
}

void Planner::draw(const Fleet& fleet, Draft& draft, size_t strict_sets) {
  auto models = by_model(plan_.loads);
  // Strict sets exist before their first load: "nowhere else" must have a meaning from the start.
  if (mode_ == Mode::kStrict) {
    const size_t known = plan_.loads.sets.size();
    for (const std::string& model : fleet.view.models()) {
      if (models.contains(model)) continue;
      for (SetLoad& load : strict_loads(model, {}, strict_sets)) plan_.loads.sets.push_back(std::move(load));
    }
    if (plan_.loads.sets.size() > known) models = by_model(plan_.loads);
  }
  for (auto& [model, sets] : models) draft.plan_model(model, std::move(sets));
}

std::shared_ptr<const SetTable> Planner::commit(SetTable::Map sets, size_t strict_sets) {
  // (Without any possible home every gateway plans: there is nothing to divide, nor to disagree on.)
  const bool divided_anew = !sets.empty() && strict_sets != sets_in_force();
  if (divided_anew || sets != plan_.table->sets()) {
    SetTable::Origin origin;
    origin.version = {plan_.table->epoch() + 1, name_};
    origin.loads_epoch = plan_.loads.epoch;
    origin.strict_sets = strict_sets;
    plan_.table = std::make_shared<SetTable>(origin, std::move(sets));
    plan_.partial = false;
  }
  table_ = plan_.table;
  return table_;
}

std::shared_ptr<const SetTable> Planner::follow(const Fleet& fleet, Plan plan) {
  plan_ = std::move(plan);
  return patch(fleet);
}

std::shared_ptr<const SetTable> Planner::patch(const Fleet& fleet) {
  const SetTable& common = *plan_.table;
  if (whole(fleet.view)) return table_ = plan_.table;
  Draft draft(options_, fleet, common, sets_in_force());
  draft.gone_only = true;
  draw(fleet, draft, sets_in_force());
  if (draft.sets == common.sets()) return table_ = plan_.table;
  if (table_->version() == common.version() && draft.sets == table_->sets()) return table_;
  copies_moved_ += draft.moved;
  SetTable::Origin origin = common.origin();
  origin.strict_sets = sets_in_force();
  table_ = std::make_shared<SetTable>(origin, std::move(draft.sets));
  return table_;
}

// All homes can be asked, and every model has its strict sets.
bool Planner::whole(const ClusterView& view) const {
  if (plan_.partial) return false;
  auto models = by_model(plan_.loads);
  if (mode_ == Mode::kStrict) {
    for (const std::string& model : view.models()) models[model];
  }
  for (const auto& [model, loads] : models) {
    const auto serving = view.homes_for(model);
    const auto askable = [&](NodeIndex n) { return std::binary_search(serving.begin(), serving.end(), n); };
    bool homeless = true;
    for (const SetLoad* load : loads) {
      const auto found = plan_.table->sets().find(load->set);
      if (found == plan_.table->sets().end()) continue;  // the planner had no room for it
      homeless = false;
      if (!std::all_of(found->second.nodes().begin(), found->second.nodes().end(), askable)) return false;
    }
    if (mode_ == Mode::kStrict && homeless && !serving.empty()) return false;
  }
  return true;
}

}  // namespace troupe::route
