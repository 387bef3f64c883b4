#include "gateway/route/placement/handover.h"

#include <algorithm>

namespace troupe::route {

void Handover::begin(NodeIndex node, bool leaves, std::span<const Hash128> sets, TimePoint until) {
  Book& book = books_[node];
  book = Book{};
  book.leaves = leaves;
  book.turn = ++turns_;
  book.until = until;
  book.todo.assign(sets.rbegin(), sets.rend());
  book.open.insert(sets.begin(), sets.end());
}

void Handover::leave(NodeIndex node, std::span<const Hash128> sets, TimePoint until) {
  begin(node, true, sets, until);
}

void Handover::join(NodeIndex node, std::span<const Hash128> sets, TimePoint until) {
  if (sets.empty()) {
    books_.erase(node);
  } else {
    begin(node, false, sets, until);
  }
}

void Handover::come_back(NodeIndex node) {
  books_.erase(node);
}

void Handover::forget_node(NodeIndex node) {
  const auto found = books_.find(node);
  if (found != books_.end() && !found->second.leaves) books_.erase(found);
}

void Handover::hold(NodeIndex node) {
  if (const auto found = books_.find(node); found != books_.end()) found->second.held = true;
}

void Handover::release(NodeIndex node) {
  if (const auto found = books_.find(node); found != books_.end()) found->second.held = false;
}

bool Handover::held(NodeIndex node) const {
  const auto found = books_.find(node);
  return found != books_.end() && found->second.held;
}

std::optional<Handover::Move> Handover::next() {
  if (under_way_ >= at_once_) return std::nullopt;
  // The node with the earliest deadline.
  Book* first = nullptr;
  NodeIndex node = kNoNode;
  for (auto& [n, book] : books_) {
    if (book.todo.empty() || book.held || (first != nullptr && first->until <= book.until)) continue;
    first = &book;
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

void Handover::go_to(Move& move, NodeIndex to) {
  move.to = to;
  computing_.push_back(move);
}

void Handover::done(const Move& move) {
  under_way_ -= 1;
  const auto same = [&move](const Move& m) { return m.set == move.set && m.turn == move.turn; };
  std::erase_if(computing_, same);
  const auto found = books_.find(move.from != kNoNode ? move.from : move.to);
  if (found == books_.end() || found->second.turn != move.turn) return;  // the handover began anew meanwhile
  Book& book = found->second;
  book.open.erase(move.set);
  if (book.open.empty() && !book.leaves) books_.erase(found);
}

void Handover::advance(TimePoint now) {
  for (auto it = books_.begin(); it != books_.end();) {
    Book& book = it->second;
    if (now >= book.until) {
      book.todo.clear();
      book.open.clear();
      book.held = false;
    }
    const bool over = now >= book.until && !book.leaves;
    it = over ? books_.erase(it) : std::next(it);
  }
}

size_t Handover::open_sets(NodeIndex node) const {
  const auto found = books_.find(node);
  return found == books_.end() ? 0 : found->second.open.size();
}

bool Handover::leaving(NodeIndex node) const {
  const auto found = books_.find(node);
  return found != books_.end() && found->second.leaves;
}

bool Handover::avoids_by_books(NodeIndex node, const Hash128& set) const {
  const auto found = books_.find(node);
  if (found != books_.end() && found->second.open.contains(set) != found->second.leaves) return true;
  return std::any_of(computing_.begin(), computing_.end(),
                     [&](const Move& move) { return move.to == node && move.set == set; });
}

NodeIndex Handover::keeper(const Hash128& set) const {
  for (const auto& [node, book] : books_) {
    if (book.leaves && book.open.contains(set)) return node;
  }
  return kNoNode;
}

}  // namespace troupe::route
