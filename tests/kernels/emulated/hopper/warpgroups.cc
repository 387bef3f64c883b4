#include "tests/kernels/emulated/hopper/warpgroups.h"

#include <algorithm>
#include <string>

#include "tests/kernels/emulated/engine.h"
#include "tests/kernels/emulated/hopper/hopper_block.h"

namespace troupe::emulated {
namespace {

constexpr int kRegistersOfProcessor = 65536;
constexpr int kRegistersMax = 256;  // of a thread, as they are given out
constexpr int kRegisterStep = 8;

bool is_same_place(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

bool is_same(const AlignedInstruction& a, const AlignedInstruction& b) {
  return a.name == b.name && is_same_place(a.where, b.where) && a.arguments[0] == b.arguments[0] &&
         a.arguments[1] == b.arguments[1];
}

struct Change {
  int registers;
  Place where;
};

// The warp's lanes are at take_registers() or give_registers().
void begin_change(const Operands& operands, const char* name) {
  const Change& change = *static_cast<const Change*>(operands[0]);
  come_to({name, change.where, {static_cast<uint64_t>(change.registers), 0}});
}

constexpr char kTakeName[] = "take_registers";
constexpr char kGiveName[] = "give_registers";

const Collective kTake{kTakeName, [](const Operands& operands, uint32_t) {
                         const auto& [registers, where] = *static_cast<const Change*>(operands[0]);
                         begin_change(operands, kTakeName);
                         if (registers < hopper_block().registers.of_warp(Engine::running().warp()))
                           fail_kernel("take_registers of fewer than the warp has", where);
                       }};
const Collective kGive{kGiveName, [](const Operands& operands, uint32_t) {
                         const auto& [registers, where] = *static_cast<const Change*>(operands[0]);
                         begin_change(operands, kGiveName);
                         RegisterPool& pool = hopper_block().registers;
                         const int warp = Engine::running().warp();
                         if (registers > pool.of_warp(warp))
                           fail_kernel("give_registers of more than the warp has", where);
                         pool.set(warp, registers);
                         Engine::running().wake(&pool);
                       }};
const Collective kPool{"take_registers, for which the block has too few left", nullptr};

}  // namespace

void Warpgroup::come(int warp, const AlignedInstruction& instruction) {
  uint64_t& count = counts_[static_cast<size_t>(warp)];
  if (count - done_ == ahead_.size()) ahead_.push_back(instruction);
  const AlignedInstruction& expected = ahead_[count - done_];
  if (!is_same(expected, instruction)) {
    const std::string what = std::string(instruction.name) + " where another warp of the warpgroup has " +
                             expected.name + " of line " + std::to_string(expected.where.line());
    fail_kernel(what.c_str(), instruction.where);
  }
  ++count;
  if (*std::min_element(counts_.begin(), counts_.end()) == done_) return;
  ahead_.pop_front();
  ++done_;
}

void Warpgroup::check_end() const {
  if (ahead_.empty()) return;
  const auto came = std::count_if(counts_.begin(), counts_.end(), [&](auto count) { return count > done_; });
  const std::string what = std::string(ahead_.front().name) + ", to which only " + std::to_string(came) +
                           " of the warpgroup's 4 warps came,";
  fail_kernel(what.c_str(), ahead_.front().where);
}

void RegisterPool::reset(int threads) {
  left_ = 0;
  of_warps_.fill(std::min(kRegistersMax, kRegistersOfProcessor / threads / kRegisterStep * kRegisterStep));
}

bool RegisterPool::set(int warp, int registers) {
  int& own = of_warps_[static_cast<size_t>(warp)];
  const int left = left_ - (registers - own) * kLanes;
  if (left < 0) return false;
  left_ = left;
  own = registers;
  return true;
}

void take_registers(int registers, const Place& where) {
  Change operand{registers, where};
  warp_collective(kTake, ~0u, &operand, where);
  // The first of the warp's threads to find enough takes them for all.
  Engine& engine = Engine::running();
  RegisterPool& pool = hopper_block().registers;
  while (!pool.set(engine.warp(), registers)) engine.wait_for(&pool, kPool, where);
}

void give_registers(int registers, const Place& where) {
  Change operand{registers, where};
  warp_collective(kGive, ~0u, &operand, where);
}

}  // namespace troupe::emulated
