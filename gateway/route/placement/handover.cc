#include "gateway/route/placement/handover.h"

#include <algorithm>

namespace troupe::route {

void Handover::begin(NodeIndex node, bool leaves, std::span<const Hash128> sets, TimePoint until) {
  Transfer& transfer = transfers_[node];
  transfer = Transfer{};
  transfer.leaves = leaves;
  transfer.turn = ++turns_;
  transfer.until = until;
  transfer.todo.assign(sets.rbegin(), sets.rend());
  transfer.open.insert(sets.begin(), sets.end());
}

void Handover::leave(NodeIndex node, std::span<const Hash128> sets, TimePoint until) {
  begin(node, true, sets, until);
}

void Handover::join(NodeIndex node, std::span<const Hash128> sets, TimePoint until) {
  if (sets.empty()) {
    transfers_.erase(node);
  } else {
    begin(node, false, sets, until);
  }
}

void Handover::come_back(NodeIndex node) {
  transfers_.erase(node);
}

void Handover::forget_node(NodeIndex node) {
  const auto found = transfers_.find(node);
  if (found != transfers_.end() && !found->second.leaves) transfers_.erase(found);
}

void Handover::hold(NodeIndex node) {
  if (const auto found = transfers_.find(node); found != transfers_.end()) found->second.held = true;
}

void Handover::release(NodeIndex node) {
  if (const auto found = transfers_.find(node); found != transfers_.end()) found->second.held = false;
}

bool Handover::held(NodeIndex node) const {
  const auto found = transfers_.find(node);
  return found != transfers_.end() && found->second.held;
}

std::optional<Handover::Move> Handover::next() {
  if (under_way_ >= at_once_) return std::nullopt;
  // The node with the earliest deadline.
  Transfer* first = nullptr;
  NodeIndex node = kNoNode;
  for (auto& [n, transfer] : transfers_) {
    if (transfer.todo.empty() || transfer.held || (first != nullptr && first->until <= transfer.until))
      continue;
    first = &transfer;
    node = n;
  }
  if (first == nullptr) return std::nullopt;
  Move move;
  move.set = first->todo.back();
  move.turn = first->turn;
  (first->leaves ? move.from : move.to) = node;
  first->todo.pop_back();
  under_way_ += 1;
  return move;
}

void Handover::set_target(Move& move, NodeIndex to) {
  move.to = to;
  computing_.push_back(move);
}

void Handover::done(const Move& move) {
  under_way_ -= 1;
  const auto same = [&move](const Move& m) { return m.set == move.set && m.turn == move.turn; };
  std::erase_if(computing_, same);
  const auto found = transfers_.find(move.from != kNoNode ? move.from : move.to);
  if (found == transfers_.end() || found->second.turn != move.turn) return;  // it began anew meanwhile
  Transfer& transfer = found->second;
  transfer.open.erase(move.set);
  if (transfer.open.empty() && !transfer.leaves) transfers_.erase(found);
}

void Handover::advance(TimePoint now) {
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    Transfer& transfer = it->second;
    if (now >= transfer.until) {
      transfer.todo.clear();
      transfer.open.clear();
      transfer.held = false;
    }
    const bool over = now >= transfer.until && !transfer.leaves;
    it = over ? transfers_.erase(it) : std::next(it);
  }
}

size_t Handover::open_sets(NodeIndex node) const {
  const auto found = transfers_.find(node);
  return found == transfers_.end() ? 0 : found->second.open.size();
}

bool Handover::leaving(NodeIndex node) const {
  const auto found = transfers_.find(node);
  return found != transfers_.end() && found->second.leaves;
}

bool Handover::avoids_by_transfers(NodeIndex node, const Hash128& set) const {
  const auto found = transfers_.find(node);
  if (found != transfers_.end() && found->second.open.contains(set) != found->second.leaves) return true;
  return std::any_of(computing_.begin(), computing_.end(),
                     [&](const Move& move) { return move.to == node && move.set == set; });
}

NodeIndex Handover::draining_holder(const Hash128& set) const {
  for (const auto& [node, transfer] : transfers_) {
    if (transfer.leaves && transfer.open.contains(set)) return node;
  }
  return kNoNode;
}

}  // namespace troupe::route
