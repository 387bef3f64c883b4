#include "tests/kernels/emulated/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace troupe::emulated {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = size_t{256} << 10;
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif
constexpr size_t kGuardBytes = 4096;
constexpr size_t kStaggers = 16;
constexpr size_t kStaggerBytes = 256;

}  // namespace

Fiber::Fiber(Body body, size_t number) : body_(body) {
  mapping_ =
      mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED || mprotect(mapping_, kGuardBytes, PROT_NONE) != 0) {
    std::perror("emulated CUDA: no memory for a thread's stack");
    std::abort();
  }
  stack_bottom_ = static_cast<char*>(mapping_) + kGuardBytes;
  stack_bytes_ = kStackBytes - number % kStaggers * kStaggerBytes;
  char* top = static_cast<char*>(mapping_) + kGuardBytes + stack_bytes_;
  context_ = boost::context::detail::make_fcontext(top, stack_bytes_, begin);
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef __SANITIZE_ADDRESS__
  // Frames that will never return have marked their surroundings; the next owner of these pages must not see
  // it.
  __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
#endif
  munmap(mapping_, kGuardBytes + kStackBytes);
}

void Fiber::switch_over(Fiber& from, Fiber& to) {
  from.next_ = &to;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
  const Transfer transfer = boost::context::detail::jump_fcontext(to.context_, &from);
  arrive(transfer, from);
}

// The first thing on every stack that goes on: the one left behind is to be found where it stopped.
void Fiber::arrive(const Transfer& transfer, [[maybe_unused]] Fiber& self) {
  Fiber& left = *static_cast<Fiber*>(transfer.data);
  left.context_ = transfer.fctx;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(self.fake_stack_, &left.stack_bottom_, &left.stack_bytes_);
#endif
}

void Fiber::begin(Transfer transfer) {
  Fiber& self = *static_cast<Fiber*>(transfer.data)->next_;
  arrive(transfer, self);
  self.body_();
  std::abort();
}

}  // namespace troupe::emulated
