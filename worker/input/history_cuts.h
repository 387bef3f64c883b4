#pragma once

// Where a history that has outgrown its room may be cut. The cuts depend on what is before them alone, so a
// conversation that grows keeps one for many turns, and its prompt's beginning stays the same between two. A
// cut is where a turn begins, and at least `step` tokens behind the cut before it. Behind the last of these
// every turn is a cut, for a turn that has no room beside the others.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

struct HistoryMessage {
  int64_t tokens = 0;        // as the model's template writes it
  bool begins_turn = false;  // the history may begin with it
  bool passing = false;      // it may be gone with the next turn: it takes room, and moves no cut
};

class HistoryCuts {
 public:
  // REQUIRES: step >= 1
  HistoryCuts(std::span<const HistoryMessage> history, int64_t step);

  // The first message that stays where at most `room` tokens do: 0 if all of them fit. Passing messages count
  // in whole quarters of a step, so that one that is a bit longer moves nothing. Where no cut leaves so
  // little, the last turn's.
  size_t first_kept(int64_t room) const;
  // The cut behind that one; nullopt: there is none.
  std::optional<size_t> next(size_t cut) const;

 private:
  struct Cut {
    size_t message;
    int64_t tokens_before;
  };
  std::vector<Cut> cuts_;  // ascending; the first is the history's beginning
  int64_t tokens_ = 0, passing_ = 0;
};

}  // namespace troupe
