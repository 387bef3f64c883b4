#pragma once

// A stack of its own to run a function on, by Boost.Context's bare switch (a dozen instructions). The address
// sanitizer is informed of each switch.

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace troupe::emulated {

class Fiber {
 public:
  using Body = void (*)();  // does not return

  Fiber() = default;  // the stack of the caller of switch_over: to go back to
  // `number` staggers the stacks: with all tops at one offset in their pages, the fibers of a block would
  // fight for the same few sets of the first cache.
  Fiber(Body body, size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Goes on where `to` left off, or begins its body; returns when another fiber switches to `from`. REQUIRES:
  // `from` runs.
  static void switch_over(Fiber& from, Fiber& to);

 private:
  using Transfer = boost::context::detail::transfer_t;
  static void begin(Transfer transfer);
  static void arrive(const Transfer& transfer, Fiber& self);

  Body body_ = nullptr;
  boost::context::detail::fcontext_t context_ = nullptr;  // while it does not run
  Fiber* next_ = nullptr;                                 // the fiber it last switched to
  void* mapping_ = nullptr;
  // Needed by the address sanitizer; it reports them itself for a stack that is not ours.
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace troupe::emulated
