// The functions that device code calls (collectives.h), for the kernel that runs on this system thread.

#include "tests/kernels/emulated/collectives.h"
#include "tests/kernels/emulated/engine.h"

namespace troupe::emulated {

void block_barrier(const Place& where) {
  Engine::running().block_barrier(where);
}

void warp_collective(const Collective& collective, uint32_t mask, void* operand, const Place& where) {
  Engine::running().warp_collective(collective, mask, operand, where);
}

void await_launch(const Place& where) {
  Engine::running().await_launch(where);
}

int lane_index() {
  return Engine::running().lane();
}

uint32_t live_lanes() {
  return Engine::running().live_lanes();
}

unsigned char* dynamic_shared() {
  return Engine::running().dynamic_shared();
}

}  // namespace troupe::emulated
