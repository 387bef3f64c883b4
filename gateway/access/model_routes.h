#pragma once

// Names under which clients ask for models that are served under others: an alias has one model behind it, a
// split (an A/B test) several with weights. A subject (an end user, a session) keeps its arm by weighted
// rendezvous hashing: the arm has the greatest score, made of the subject's hash, the arm's name and its
// weight. So a change of weights moves subjects only to arms that gained. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/block_hash.h"
#include "common/core/status.h"

namespace troupe {

struct ModelArm {
  std::string model;
  double weight = 1;
  bool operator==(const ModelArm&) const = default;
};

struct ModelRoute {
  std::string name;
  std::vector<ModelArm> arms;  // one: an alias
  bool operator==(const ModelRoute&) const = default;
};

class ModelRoutes {
 public:
  // The error says what is wrong of which route.
  static StatusOr<ModelRoutes> of(std::vector<ModelRoute> routes);

  bool empty() const { return routes_.empty(); }
  const std::vector<ModelRoute>& all() const { return routes_; }
  // null: `name` is a model's own.
  const ModelRoute* find(std::string_view name) const;

 private:
  std::vector<ModelRoute> routes_;  // by name
};

// REQUIRES: the route has arms. `subject`: who is to have the same arm each time.
const ModelArm& arm_of(const ModelRoute& route, const Hash128& subject);

}  // namespace troupe
