#pragma once

// The use of one limit (requests a minute, tokens a day) in fixed windows of unix time: 12:00:00 to
// 12:00:59, or a day of UTC. A request takes a hold of its estimate when it is let in, and settles it by what
// it has used. One that ends in a later window than it began in has been counted where it began; what it used
// beyond its estimate counts where it ends. So nothing is counted twice, and nothing escapes.
//
// Capacity is this gateway's part of the limit, or, where gateways share a store, the sum of the grants that
// it got from there in this window (account_record.h).
//
// Sans-io: time is an argument. Not thread-safe.

#include <algorithm>
#include <cstdint>

namespace troupe::route {

class WindowBudget {
 public:
  struct Hold {
    int64_t window = -1;  // its number; -1: nothing is held
    int64_t amount = 0;
  };

  // REQUIRES: length_s > 0.
  explicit WindowBudget(int64_t length_s) : length_s_(length_s) {}

  // The window of `unix_ms` from here on: another one's numbers are dropped.
  void advance(int64_t unix_ms) {
    const int64_t window = unix_ms / 1000 / length_s_;
    // A clock that is set back a little stays in its window. One that was far ahead was wrong, and its window
    // must not refuse requests until then.
    if (window == window_ || window + 1 == window_) return;
    *this = WindowBudget(length_s_);
    window_ = window;
  }
  int64_t window() const { return window_; }
  // Until the window ends.
  int64_t ends_in_ms(int64_t unix_ms) const {
    return std::max<int64_t>((window_ + 1) * length_s_ * 1000 - unix_ms, 1);
  }

  // In use or held.
  int64_t taken() const { return used_ + held_; }
  int64_t granted() const { return granted_; }
  // The store has said what is left there in this window,
  bool is_told() const { return left_elsewhere_ >= 0; }
  // and this is its last word. REQUIRES: is_told().
  int64_t left_elsewhere() const { return left_elsewhere_; }

  // A request of more than the whole limit has its turn in a window of which nothing was used.
  static int64_t needed(int64_t amount, int64_t limit) { return std::min(amount, limit); }

  Hold hold(int64_t amount) {
    held_ += amount;
    return {window_, amount};
  }
  // REQUIRES: advance(). `used`: what the holder has used.
  void settle(const Hold& hold, int64_t used) {
    if (hold.window == window_) {
      // (The clock may have been in this window before.)
      held_ = std::max<int64_t>(held_ - hold.amount, 0);
      used_ += used;
    } else {
      used_ += std::max<int64_t>(used - hold.amount, 0);
    }
  }

  // A grant of the store, for `window`; one for another window is void.
  void grant(int64_t window, int64_t amount, int64_t left) {
    if (window != window_) return;
    granted_ += amount;
    left_elsewhere_ = left;
  }

 private:
  int64_t length_s_;
  int64_t window_ = -1;
  int64_t used_ = 0, held_ = 0;
  int64_t granted_ = 0, left_elsewhere_ = -1;
};

}  // namespace troupe::route
