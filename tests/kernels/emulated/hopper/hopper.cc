#include "tests/kernels/emulated/hopper/hopper.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/engine.h"
#include "tests/kernels/emulated/hopper/hopper_block.h"

namespace troupe::emulated {
namespace {

constexpr int kBoxRowBytes = 128;     // 64 elements
constexpr uint32_t kChunkBytes = 16;  // that the swizzle keeps together

std::atomic<bool> are_maps_refused = false;
Mutex last_commits_mutex;
std::vector<int> last_commits_of_a_block ABSL_GUARDED_BY(last_commits_mutex);

const Collective kNamedBarrier{"named_barrier", [](const Operands&, uint32_t) {}};
const Collective kPhase{"wait for a barrier's phase", [](const Operands&, uint32_t) {}};

void settle(PhaseBarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.parity ^= 1u;
  barrier.missing = barrier.arrivals;
  Engine::running().wake(&barrier);
}

void land_boxes(PhaseBarrier& barrier) {
  HopperBlock& block = hopper_block();
  for (Box& box : block.boxes) {
    if (box.barrier != &barrier) continue;
    for (uint32_t i = 0; i < box.rows.size(); i += kChunkBytes) {
      const uint32_t place = swizzled(box.to + i);
      for (unsigned char* const to : {dynamic_shared(), block.view.bytes()})
        std::memcpy(to + place, box.rows.data() + i, kChunkBytes);
    }
    barrier.bytes -= static_cast<int32_t>(box.rows.size());
    box.barrier = nullptr;
  }
  std::erase_if(block.boxes, [](const Box& box) { return box.barrier == nullptr; });
  settle(barrier);
}

// Counts one more thread, and lets through all that wait if it is the last.
bool completes_barrier(int id, int threads) {
  int& arrived = hopper_block().arrived[static_cast<size_t>(id)];
  if (++arrived < threads) return false;
  arrived = 0;
  Engine::running().wake(&arrived);
  return true;
}

void check_made(const PhaseBarrier& barrier, const Place& where) {
  if (barrier.arrivals == 0 || barrier.arrivals > static_cast<uint32_t>(kThreadsMax)) {
    fail_kernel("a barrier that was not made", where);
  }
}

// At most two engines of a system thread have a block: a launch may run within another's first.
std::array<HopperBlock, 2>& blocks_of_this_thread() {
  static thread_local std::array<HopperBlock, 2> own;
  return own;
}

}  // namespace

HopperBlock* hopper_block_if_made() {
  const Engine& engine = Engine::running();
  for (HopperBlock& block : blocks_of_this_thread()) {
    if (block.engine == &engine && block.serial == engine.block_serial()) return &block;
  }
  return nullptr;
}

HopperBlock& hopper_block() {
  if (HopperBlock* const made = hopper_block_if_made()) return *made;
  const Engine& engine = Engine::running();
  auto& [first, second] = blocks_of_this_thread();
  HopperBlock& own = first.engine == nullptr || first.engine == &engine ? first : second;
  own.engine = &engine;
  own.serial = engine.block_serial();
  own.view.reset(engine.dynamic_shared_bytes());
  own.registers.reset(engine.thread_count());
  own.boxes.clear();
  own.arrived.fill(0);
  own.products.fill({});
  own.groups.fill({});
  own.commits.clear();
  return own;
}

WarpProducts& warp_products() {
  return hopper_block().products[static_cast<size_t>(Engine::running().warp())];
}

void come_to(const AlignedInstruction& instruction) {
  const Engine& engine = Engine::running();
  const int warp = engine.warp(), group = warp / kWarpsOfGroup;
  if ((group + 1) * kWarpsOfGroup * kLanes > engine.thread_count()) {
    const std::string what = std::string(instruction.name) + " by a warpgroup of less than four warps";
    fail_kernel(what.c_str(), instruction.where);
  }
  hopper_block().groups[static_cast<size_t>(group)].come(warp % kWarpsOfGroup, instruction);
}

void end_hopper_block() {
  const HopperBlock* const block = hopper_block_if_made();
  if (block == nullptr) return;
  for (const Warpgroup& group : block->groups) group.check_end();
  for (const int arrived : block->arrived) {
    if (arrived != 0)
      fail_kernel("a named barrier that some had come to as the block ended", Place::current());
  }
  const MutexLock lock(last_commits_mutex);
  last_commits_of_a_block = block->commits;
}

void note_commit() {
  const int warp = Engine::running().warp();
  if (warp % kWarpsOfGroup == 0) hopper_block().commits.push_back(warp / kWarpsOfGroup);
}

std::vector<int> last_commits() {
  const MutexLock lock(last_commits_mutex);
  return last_commits_of_a_block;
}

void set_tensor_maps_refused(bool refused) {
  are_maps_refused = refused;
}

uint32_t shared_offset(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - dynamic_shared());
}

void named_barrier(int id, int threads, const Place& where) {
  if (completes_barrier(id, threads)) return;
  Engine::running().wait_for(&hopper_block().arrived[static_cast<size_t>(id)], kNamedBarrier, where);
}

void arrive_named_barrier(int id, int threads) {
  completes_barrier(id, threads);
}

void init_phases(PhaseBarrier& barrier, int arrivals) {
  const auto count = static_cast<uint32_t>(arrivals);
  barrier = {count & 0xffff, count & 0x7fff, 0, 0};
  hopper_block().view.make_barrier(Engine::running().thread_index(), &barrier);
}

void fence_barriers() {
  hopper_block().view.fence_barriers(Engine::running().thread_index());
  fence_stores();
}

void arrive_at(PhaseBarrier& barrier, int bytes, const Place& where) {
  check_made(barrier, where);
  if (barrier.missing == 0) fail_kernel("an arrival more than the barrier was made for", where);
  barrier.bytes += bytes;
  --barrier.missing;
  if (Engine::running().is_awaited(&barrier)) land_boxes(barrier);
  settle(barrier);
}

void wait_for_phase(PhaseBarrier& barrier, int parity, const Place& where) {
  check_made(barrier, where);
  land_boxes(barrier);
  while (barrier.parity == static_cast<uint32_t>(parity)) Engine::running().wait_for(&barrier, kPhase, where);
}

void copy_to_tile(void* shared, const CUtensorMap& map, const Corner& corner, PhaseBarrier& barrier,
                  const Place& where) {
  check_made(barrier, where);
  HopperBlock& block = hopper_block();
  if (block.view.is_unpublished(&barrier))
    fail_kernel("a copy to a barrier that was made without fence_barrier_init() behind it", where);
  Box box{&barrier, shared_offset(shared), {}};
  if (box.to % kBoxRowBytes != 0) fail_kernel("a box to a place that is not aligned to 128 bytes", where);
  for (uint32_t i = 0; i < map.box_planes * map.box_rows; ++i) {
    const auto plane = static_cast<uint64_t>(corner.plane) + i / map.box_rows;
    const auto row = static_cast<uint64_t>(corner.row) + i % map.box_rows;
    for (uint32_t c = 0; c < map.box_columns * 2; ++c) {
      const uint64_t at = static_cast<uint64_t>(corner.column) * 2 + c;
      const bool inside = plane < map.planes && row < map.rows && at < map.columns * 2;
      box.rows.push_back(inside ? map.data[plane * map.plane_bytes + row * map.row_bytes + at] : 0);
    }
  }
  std::memset(shared, 0xFF, box.rows.size());
  std::memset(block.view.bytes() + box.to, 0xFF, box.rows.size());
  block.boxes.push_back(std::move(box));
  if (Engine::running().is_awaited(&barrier)) land_boxes(barrier);
}

void fence_stores() {
  hopper_block().view.fence(Engine::running().thread_index());
}

void store_to_tile(void* shared, const uint4& value, const Place& where) {
  const uint32_t offset = shared_offset(shared);
  if (offset % sizeof(value) != 0) fail_kernel("a store to a tile that is not aligned to 16 bytes", where);
  std::memcpy(shared, &value, sizeof(value));
  hopper_block().view.store(Engine::running().thread_index(), offset, value);
}

void note_landed(const void* shared, const uint4& value) {
  HopperBlock* const block = hopper_block_if_made();
  const Engine& engine = Engine::running();
  // Not one to an array of fixed size.
  if (block != nullptr && shared >= engine.dynamic_shared() &&
      shared < engine.dynamic_shared() + engine.dynamic_shared_bytes())
    block->view.store(engine.thread_index(), shared_offset(shared), value);
}

}  // namespace troupe::emulated

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr cuuint32_t kBoxMax = 256;
  const auto fits = [&](cuuint32_t i) {
    return sizes[i] > 0 && sizes[i] <= cuuint64_t{1} << 32 && box[i] > 0 && box[i] <= kBoxMax &&
           steps[i] == 1;
  };
  const bool has_planes = rank == 3;
  const bool taken = (rank == 2 || has_planes) && reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
                     strides[0] % 16 == 0 && fits(0) && fits(1) && box[0] * 2 == 128 &&
                     (!has_planes || (strides[1] % 16 == 0 && fits(2))) &&
                     reinterpret_cast<uintptr_t>(map) % 64 == 0;
  if (!taken || troupe::emulated::are_maps_refused) return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const unsigned char*>(data), sizes[0], sizes[1], strides[0], box[0], box[1]};
  if (has_planes) {
    map->planes = sizes[2];
    map->plane_bytes = strides[1];
    map->box_planes = box[2];
  }
  return CUDA_SUCCESS;
}
