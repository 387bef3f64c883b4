#pragma once

// The addresses of one name of which each is a node of its own (`resolve: each`): lookups go in, nodes that
// join and leave come out. DNS is believed when it answers: an address that it has no more leaves. A lookup
// that fails, or finds nothing, says nothing about the nodes.
//
// Bounded: of more than kMax addresses those that are here already stay, so that a resolver which turns its
// list round with every answer does not turn the nodes round.

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::route {

class NameAddresses {
 public:
  static constexpr size_t kMax = 64;

  struct Change {
    std::vector<std::string> joined, left;
    size_t left_out = 0;  // addresses beyond kMax
  };
  // A lookup's addresses, in its order, perhaps repeated; empty: it failed.
  Change found(const std::vector<std::string>& addresses);
  // It could not join: the next lookup that has it says so again.
  void forget(const std::string& address) { std::erase(known_, address); }
  const std::vector<std::string>& known() const { return known_; }

 private:
  std::vector<std::string> known_;
};

}  // namespace troupe::route
