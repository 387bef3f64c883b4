#pragma once

// DRY ("don't repeat yourself"): a token that would make the end of a text repeat an earlier passage loses
//
//   multiplier · base^(L - allowed_length)
//
// of its logit, where L >= allowed_length is the length of the longest earlier passage that equals the text's
// end and was followed by that token. The meaning is llama.cpp's and koboldcpp's (p-e-w's): a passage holds
// no sequence breaker, and a token that is a breaker by itself loses nothing. Pure and linear in the history.

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

// Sequence breakers as tokens. Immutable after construction, so it may be shared by requests and threads.
class DryBreakers {
 public:
  DryBreakers() = default;
  // Each not empty; ids are not negative. What begins in the middle of a token begins with that token.
  explicit DryBreakers(const std::vector<std::vector<int32_t>>& sequences);
  // A token that begins sequences, and the index of the tokens behind it.
  struct Head {
    int32_t token = 0;
    uint32_t tail = 0;
    auto operator<=>(const Head&) const = default;
  };
  // `singles`: tokens that are breakers alone. REQUIRES: no tail is empty
  DryBreakers(const std::vector<int32_t>& singles, std::vector<Head> heads,
              std::vector<std::vector<int32_t>> tails);

  // Whether the token alone is a breaker.
  bool is_breaker(int32_t token) const { return has(singles_, token); }
  // How many of the last tokens are behind the last breaker, `count_max` at most: all of them if there is
  // none.
  size_t count_behind(std::span<const int32_t> history, size_t count_max) const;

 private:
  static bool has(const std::vector<bool>& ids, int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < ids.size() && ids[static_cast<size_t>(token)];
  }
  void settle();
  // The tokens of the longest sequence that begins at `at` and is whole; 0: none does.
  size_t match_at(std::span<const int32_t> history, size_t at) const;

  std::vector<bool> singles_, begins_;  // by id; breakers alone, and heads
  std::vector<Head> heads_;             // sorted
  std::vector<std::vector<int32_t>> tails_;
  size_t tail_max_ = 0;  // tokens of the longest
};

struct DryParams {
  float multiplier = 0.0f;                                // 0: off
  float base = 1.75f;                                     // >= 1
  int32_t allowed_length = 2;                             // >= 1
  int32_t range = 0;                                      // the last tokens of the history; 0: all
  std::shared_ptr<const DryBreakers> breakers = nullptr;  // null: none
};

struct DryPenalty {
  int32_t token = 0;
  int32_t length = 0;  // L, as far as a greater one has a greater penalty
  float amount = 0;    // finite
};

// Finds the penalties for the token that comes behind a history. It keeps memory from call to call, nothing
// else. Not thread-safe.
class DryMatcher {
 public:
  // Each token once, in no order. Valid until the next call. REQUIRES: multiplier > 0; ids not negative
  std::span<const DryPenalty> find(const DryParams& params, std::span<const int32_t> history);

 private:
  void match(std::span<const int32_t> window, int32_t length_max);

  std::vector<int32_t> lengths_;  // by place, counted from the end
  std::vector<DryPenalty> found_;
};

}  // namespace troupe
