#include "worker/text/tokenizer/token_automaton.h"

#include <algorithm>
#include <deque>

namespace troupe {

TokenAutomaton::TokenAutomaton(const std::vector<std::string>& strings) : nodes_(1) {
  for (size_t i = 0; i < strings.size(); ++i) {
    State at = kStart;
    for (const char c : strings[i]) {
      State to = child(at, c);
      if (to == kStart) {
        to = static_cast<State>(nodes_.size());
        nodes_[at].children.emplace_back(c, to);
        nodes_.emplace_back();
      }
      at = to;
    }
    if (at != kStart && nodes_[at].string == kNone) nodes_[at].string = i;
  }
  link();
}

TokenAutomaton::State TokenAutomaton::child(State state, char c) const {
  const auto& children = nodes_[state].children;
  const auto found =
      std::find_if(children.begin(), children.end(), [c](const auto& entry) { return entry.first == c; });
  return found == children.end() ? kStart : found->second;
}

TokenAutomaton::State TokenAutomaton::next(State state, char c) const {
  while (true) {
    const State to = child(state, c);
    if (to != kStart || state == kStart) return to;
    state = nodes_[state].suffix;
  }
}

// Nodes in the order of their depth: the suffix of each is one of a lesser depth.
void TokenAutomaton::link() {
  std::deque<State> open{kStart};
  while (!open.empty()) {
    const State at = open.front();
    open.pop_front();
    for (const auto& [c, to] : nodes_[at].children) {
      Node& node = nodes_[to];
      node.suffix = at == kStart ? kStart : next(nodes_[at].suffix, c);
      node.ends_with = node.string != kNone ? to : nodes_[node.suffix].ends_with;
      open.push_back(to);
    }
  }
}

bool TokenAutomaton::begins_one(State state) const {
  for (; state != kStart; state = nodes_[state].suffix) {
    if (!nodes_[state].children.empty()) return true;
  }
  return false;
}

}  // namespace troupe
