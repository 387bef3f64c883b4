#pragma once

// The block scheduler of one system thread: which fiber goes on next, and which waits for which.
//
// Of a block's threads that can run, the one with the lowest position runs; its position is its index, the
// index from the end, or chance (Order). It runs until it has to wait and then switches over to the next by
// itself: there is no scheduler's stack to pass through. A thread that has not begun needs no stack of its
// own until another waits: a thread that ends runs it on its own stack, which is free now, so that a kernel
// without barriers runs as a plain loop.

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "tests/kernels/emulated/collectives.h"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/fiber.h"
#include "tests/kernels/emulated/host.h"
#include "tests/kernels/emulated/vectors.h"

namespace troupe::emulated {

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t dynamic_shared_bytes;
  Entry entry;
  const void* call;
  Order order;
  uint32_t seed;
  bool dependent = false;  // each of its threads has to await the launch before it
};

// One cp.async on its way.
struct Copy {
  void* shared;
  uint4 bytes;
  uint32_t group;
};

struct Thread {
  uint3 index{};
  Fiber* fiber = nullptr;  // null before it begins
  // Its wait, if it waits: at the block's barrier (no collective), in one of its warp, or for `awaits`.
  const Collective* collective = nullptr;
  uint32_t mask = 0;
  Place where;
  const void* awaits = nullptr;  // wait_for()'s
  bool awaited_launch = false;
  // Oldest first; those before `copies_begin` have landed.
  std::vector<Copy> copies;
  size_t copies_begin = 0;
  uint32_t groups = 0;  // committed
};

class Engine {
 public:
  // One that nothing is begun on. Of two: a launch may run between another's begin() and its run().
  static Engine& idle_of_this_thread();
  // That of the kernel which runs. REQUIRES: called by a kernel.
  static Engine& running();

  Engine();
  ~Engine();

  // Runs every block, or what is left of them since begin(). Returns how often it switched between fibers.
  uint64_t run(const Grid& grid);
  // A dependent launch's first block, as far as it gets before what comes before the launch has run.
  // REQUIRES: run() follows, on the same system thread, with the same grid.
  void begin(const Grid& grid);

  // Waits until the work before this launch has run.
  void await_launch(const Place& where);

  void block_barrier(const Place& where);
  void warp_collective(const Collective& collective, uint32_t mask, void* operand, const Place& where);

  // Waits until another thread calls wake(what). `kind` names it in messages.
  void wait_for(const void* what, const Collective& kind, const Place& where);
  void wake(const void* what);
  bool is_awaited(const void* what) const;

  Thread& thread() { return *current_; }
  int lane() const { return static_cast<int>(current_index() % kLanes); }
  int thread_index() const { return static_cast<int>(current_index()); }
  int warp() const { return static_cast<int>(current_index() / kLanes); }
  uint64_t block_serial() const { return block_serial_; }  // counts the system thread's blocks, from 1
  uint32_t live_lanes() const { return warps_[current_index() / kLanes].live; }
  unsigned char* dynamic_shared() const { return dynamic_shared_; }
  size_t dynamic_shared_bytes() const { return grid_.dynamic_shared_bytes; }
  int thread_count() const { return static_cast<int>(thread_count_); }

 private:
  // Lanes that have come to one collective, and wait for the rest of its mask.
  struct Gathering {
    const Collective* collective = nullptr;
    uint32_t mask = 0;
    uint32_t arrived = 0;
    Place where;
    bool is(const Collective& other, uint32_t other_mask, const Place& place) const;
  };
  struct Warp {
    uint32_t live = 0;
    int gathering_count = 0;
    std::array<Gathering, kLanes> gatherings;
    Operands operands{};
  };
  // Positions as bits.
  struct Positions {
    void set(size_t position) {
      words[position / 64] |= uint64_t{1} << position % 64;
      filled |= 1u << position / 64;
    }
    void clear(size_t position) {
      words[position / 64] &= ~(uint64_t{1} << position % 64);
      if (words[position / 64] == 0) filled &= ~(1u << position / 64);
    }
    std::array<uint64_t, kThreadsMax / 64> words{};
    uint32_t filled = 0;  // which words are not 0
  };

  void enter();
  void leave();
  void prepare(const Grid& grid);
  uint3 block_at(uint64_t position) const;
  void begin_block();
  void run_threads_until_end();
  void shuffle_threads();
  static void fiber_body();
  void run_threads();
  void end_current();
  Thread* take_next();
  void wait_or_go_on();
  void make_current(Thread& next);
  Fiber* idle_fiber();
  void switch_over(Fiber& to);
  void release_barrier();
  size_t current_index() const { return static_cast<size_t>(current_ - threads_.data()); }
  [[noreturn]] void fail_deadlock() const;

  Grid grid_{};
  bool has_begun_ = false;  // between begin() and run()
  bool is_early_ = false;   // within begin()
  size_t thread_count_ = 0;
  uint64_t block_count_ = 0;
  uint64_t block_start_ = 0;  // the shuffled blocks: start + i stride, modulo their count
  uint64_t block_stride_ = 1;
  std::minstd_rand random_;
  uint64_t switches_ = 0;
  uint64_t block_serial_ = 0;
  unsigned char* dynamic_shared_ = nullptr;

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<uint16_t, kThreadsMax> order_{};      // position -> thread
  std::array<uint16_t, kThreadsMax> positions_{};  // thread -> position
  Positions ready_;
  Positions live_;
  size_t live_count_ = 0;
  size_t at_barrier_ = 0;
  Thread* current_ = nullptr;

  Fiber host_;
  Fiber* fiber_ = nullptr;  // that runs
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace troupe::emulated
