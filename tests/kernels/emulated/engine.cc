#include "tests/kernels/emulated/engine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/kernels/emulated/cuda_runtime.h"
#include "tests/kernels/emulated/hopper/hopper.h"

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace troupe::emulated {
namespace {

constexpr size_t kSharedAlignment = 1024;  // of tiles that are swizzled

thread_local constinit Engine* running_engine = nullptr;

// "kernel.cu:12, void scale(float*)".
std::string text_of(const Place& where) {
  const char* slash = std::strrchr(where.file_name(), '/');
  return std::string(slash == nullptr ? where.file_name() : slash + 1) + ":" + std::to_string(where.line()) +
         ", " + where.function_name();
}

std::string text_of(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

}  // namespace

Engine& Engine::idle_of_this_thread() {
  static thread_local Engine first, second;
  return first.has_begun_ ? second : first;
}

Engine& Engine::running() {
  if (running_engine == nullptr) {
    std::fprintf(stderr, "emulated CUDA: a device function was called by the host\n");
    std::abort();
  }
  return *running_engine;
}

Engine::Engine() : threads_(kThreadsMax), warps_(kThreadsMax / kLanes) {}
Engine::~Engine() = default;

// --- the grid

uint64_t Engine::run(const Grid& grid) {
  const bool has_begun = std::exchange(has_begun_, false);
  if (!has_begun) prepare(grid);
  enter();
  for (uint64_t position = 0; position < block_count_; ++position) {
    blockIdx = block_at(position);
    if (has_begun && position == 0) {
      wake(&is_early_);
    } else {
      begin_block();
    }
    run_threads_until_end();
    end_hopper_block();
  }
  leave();
  std::free(dynamic_shared_);
  dynamic_shared_ = nullptr;
  return switches_;
}

void Engine::begin(const Grid& grid) {
  prepare(grid);
  enter();
  has_begun_ = is_early_ = true;
  blockIdx = block_at(0);
  begin_block();
  run_threads_until_end();
  is_early_ = false;
  leave();
}

void Engine::enter() {
  if (running_engine != nullptr) fail_kernel("a launch from within a kernel");
  running_engine = this;
  gridDim = grid_.blocks;
  blockDim = grid_.threads;
}

void Engine::leave() {
  running_engine = nullptr;
}

void Engine::prepare(const Grid& grid) {
  grid_ = grid;
  switches_ = 0;
  thread_count_ = size_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  for (size_t i = 0; i < thread_count_; ++i) {
    const auto linear = static_cast<unsigned>(i);
    threads_[i].index = {linear % grid.threads.x, linear / grid.threads.x % grid.threads.y,
                         linear / grid.threads.x / grid.threads.y};
    const size_t position = grid.order == Order::kReverse ? thread_count_ - 1 - i : i;
    order_[position] = static_cast<uint16_t>(i);
    positions_[i] = static_cast<uint16_t>(position);
  }
  block_count_ = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  if (grid.order == Order::kShuffled) {
    random_.seed(grid.seed);
    block_start_ = random_() % block_count_;
    do {
      block_stride_ = random_() % block_count_;
    } while (std::gcd(block_stride_, block_count_) != 1);
  }
  // Allocated in its exact size, so that the address sanitizer sees an access beyond it.
  void* memory = nullptr;
  if (posix_memalign(&memory, kSharedAlignment, grid.dynamic_shared_bytes) != 0) std::abort();
  dynamic_shared_ = static_cast<unsigned char*>(memory);
}

uint3 Engine::block_at(uint64_t position) const {
  uint64_t block = position;
  if (grid_.order == Order::kReverse) block = block_count_ - 1 - position;
  if (grid_.order == Order::kShuffled) block = (block_start_ + position * block_stride_) % block_count_;
  const dim3& blocks = grid_.blocks;
  return {static_cast<unsigned>(block % blocks.x), static_cast<unsigned>(block / blocks.x % blocks.y),
          static_cast<unsigned>(block / blocks.x / blocks.y)};
}

void Engine::begin_block() {
  static thread_local uint64_t serials = 0;
  block_serial_ = ++serials;
  std::memset(dynamic_shared_, 0xFF, grid_.dynamic_shared_bytes);
  if (grid_.order == Order::kShuffled) shuffle_threads();
  for (size_t i = 0; i < thread_count_; ++i) {
    Thread& thread = threads_[i];
    thread.fiber = nullptr;
    thread.awaits = nullptr;
    thread.awaited_launch = false;
    thread.copies.clear();
    thread.copies_begin = 0;
    thread.groups = 0;
    live_.set(i);
  }
  for (size_t first = 0; first < thread_count_; first += kLanes) {
    const size_t lanes = std::min<size_t>(kLanes, thread_count_ - first);
    Warp& warp = warps_[first / kLanes];
    warp.live = static_cast<uint32_t>((uint64_t{1} << lanes) - 1);
    warp.gathering_count = 0;
  }
  live_count_ = thread_count_;
  at_barrier_ = 0;
  ready_ = live_;
}

// Or, in begin(), until all that have not ended wait.
void Engine::run_threads_until_end() {
  Thread* next = take_next();
  if (next == nullptr) return;
  fiber_ = &host_;
  make_current(*next);
  if (next->fiber == nullptr) next->fiber = idle_fiber();
  switch_over(*next->fiber);
}

void Engine::shuffle_threads() {
  for (size_t i = thread_count_; i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
  for (size_t i = 0; i < thread_count_; ++i) positions_[order_[i]] = static_cast<uint16_t>(i);
}

// --- threads and fibers

void Engine::fiber_body() {
  // Fibers stay with the system thread that made them.
  for (Engine& engine = running();;) engine.run_threads();
}

// Runs the current thread, and after it each next thread that has not begun yet.
void Engine::run_threads() {
  for (;;) {
    grid_.entry(grid_.call);
    end_current();
    Thread* next = take_next();
    if (next != nullptr) make_current(*next);
    if (next == nullptr || next->fiber != nullptr) {
      idle_.push_back(fiber_);
      switch_over(next == nullptr ? host_ : *next->fiber);
      return;  // woken for a thread that has not begun
    }
    next->fiber = fiber_;
  }
}

void Engine::end_current() {
  if (grid_.dependent && !current_->awaited_launch) {
    fail_kernel("a dependent launch whose thread ended without awaiting the launch before it");
  }
  const size_t index = current_index();
  live_.clear(positions_[index]);
  warps_[index / kLanes].live &= ~(1u << index % kLanes);
  --live_count_;
  // A thread that has ended counts as arrived, as on the device.
  if (live_count_ > 0 && at_barrier_ == live_count_) release_barrier();
}

// Null when all threads have ended, or go on in run().
Thread* Engine::take_next() {
  if (ready_.filled == 0) {
    if (live_count_ > 0 && !(is_early_ && is_awaited(&is_early_))) fail_deadlock();
    return nullptr;
  }
  const auto word = static_cast<size_t>(std::countr_zero(ready_.filled));
  const size_t position = word * 64 + static_cast<size_t>(std::countr_zero(ready_.words[word]));
  ready_.clear(position);
  return &threads_[order_[position]];
}

// The current thread is ready or waits; returns when it is the next to run.
void Engine::wait_or_go_on() {
  Thread* next = take_next();
  if (next == current_) return;
  if (next == nullptr) return switch_over(host_);
  make_current(*next);
  if (next->fiber == nullptr) next->fiber = idle_fiber();
  switch_over(*next->fiber);
}

void Engine::make_current(Thread& next) {
  current_ = &next;
  threadIdx = next.index;
}

Fiber* Engine::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fiber_body, fibers_.size()));
    return fibers_.back().get();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Engine::switch_over(Fiber& to) {
  ++switches_;
  Fiber& from = *std::exchange(fiber_, &to);
  Fiber::switch_over(from, to);
}

// --- waiting and waking

void Engine::block_barrier(const Place& where) {
  current_->collective = nullptr;
  current_->where = where;
  if (++at_barrier_ == live_count_) release_barrier();
  wait_or_go_on();
}

void Engine::release_barrier() {
  at_barrier_ = 0;
  ready_ = live_;
}

bool Engine::Gathering::is(const Collective& other, uint32_t other_mask, const Place& place) const {
  return collective == &other && mask == other_mask &&
         (other.anywhere || (where.line() == place.line() && where.column() == place.column() &&
                             where.file_name() == place.file_name()));
}

void Engine::warp_collective(const Collective& collective, uint32_t mask, void* operand, const Place& where) {
  const size_t index = current_index();
  const size_t first = index / kLanes * kLanes;
  const uint32_t own = 1u << index % kLanes;
  Warp& warp = warps_[index / kLanes];
  if ((mask & own) == 0) {
    fail_kernel((std::string(collective.name) + " with a mask that leaves out its own lane").c_str(), where);
  }
  if ((mask & ~warp.live) != 0) {
    fail_kernel((std::string(collective.name) + " with a mask that names lanes which have ended").c_str(),
                where);
  }
  Gathering* gathering = warp.gatherings.data();
  Gathering* const end = gathering + warp.gathering_count;
  while (gathering != end && !gathering->is(collective, mask, where)) ++gathering;
  if (gathering == end) {
    *gathering = {&collective, mask, 0, where};
    ++warp.gathering_count;
  }
  gathering->arrived |= own;
  warp.operands[index % kLanes] = operand;
  current_->collective = &collective;
  current_->mask = mask;
  current_->where = where;
  if (gathering->arrived == mask) {
    *gathering = warp.gatherings[static_cast<size_t>(--warp.gathering_count)];
    collective.complete(warp.operands, mask);
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
      ready_.set(positions_[first + static_cast<size_t>(std::countr_zero(lanes))]);
    }
  }
  wait_or_go_on();
}

void Engine::wait_for(const void* what, const Collective& kind, const Place& where) {
  current_->collective = &kind;
  current_->mask = 0;
  current_->where = where;
  current_->awaits = what;
  wait_or_go_on();
}

void Engine::await_launch(const Place& where) {
  static constexpr Collective kLaunch{"await_launch_before", nullptr};
  current_->awaited_launch = true;
  if (is_early_) wait_for(&is_early_, kLaunch, where);
}

void Engine::wake(const void* what) {
  for (size_t i = 0; i < thread_count_; ++i) {
    if (threads_[i].awaits != what) continue;
    threads_[i].awaits = nullptr;
    ready_.set(positions_[i]);
  }
}

bool Engine::is_awaited(const void* what) const {
  const auto end = threads_.begin() + static_cast<std::ptrdiff_t>(thread_count_);
  return std::any_of(threads_.begin(), end, [&](const Thread& thread) { return thread.awaits == what; });
}

// --- messages

void Engine::fail_deadlock() const {
  std::fprintf(stderr,
               "emulated CUDA: deadlock in block %s: %zu of %zu threads have not ended, and each waits\n",
               text_of(blockIdx).c_str(), live_count_, thread_count_);
  struct Group {
    std::string text;
    uint3 first;
    int count;
  };
  std::vector<Group> groups;
  for (size_t i = 0; i < thread_count_; ++i) {
    const Thread& thread = threads_[i];
    if ((live_.words[positions_[i] / 64] >> positions_[i] % 64 & 1) == 0) continue;
    char mask[32] = "";
    if (thread.collective != nullptr && thread.mask != 0)
      std::snprintf(mask, sizeof(mask), ", mask %08x", thread.mask);
    const std::string text =
        std::string(thread.collective == nullptr ? "__syncthreads" : thread.collective->name) + mask + ", " +
        text_of(thread.where);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.text == text; });
    if (same == groups.end()) {
      groups.push_back({text, thread.index, 1});
    } else {
      ++same->count;
    }
  }
  for (const Group& group : groups) {
    std::fprintf(stderr, "  thread %s and %d more at %s\n", text_of(group.first).c_str(), group.count - 1,
                 group.text.c_str());
  }
  std::abort();
}

void fail_kernel(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s, by thread %s of block %s\n", what, text_of(threadIdx).c_str(),
               text_of(blockIdx).c_str());
  std::abort();
}

void fail_kernel(const char* what, const Place& where) {
  fail_kernel((what + (" at " + text_of(where))).c_str());
}

}  // namespace troupe::emulated
