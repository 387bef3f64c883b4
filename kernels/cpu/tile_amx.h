#pragma once

// Shared by all users of AMX: eight tile registers of up to 16 rows of 64 bytes a thread.
//
// Included by target_avx512.cc under a target that adds amx-tile and amx-bf16.

namespace troupe::cpu::avx512 {

struct Tiles {
  static constexpr int64_t kSide = 16;          // rows of a register; 32-bit columns
  static constexpr int64_t kDepth = 2 * kSide;  // bfloat16 of a row: what one product sums over

  // A thread's registers as LDTILECFG reads them: here all of them whole.
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };

  static void configure() {
    static constexpr Config kConfig;
    _tile_loadconfig(&kConfig);
  }
  static void release() { _tile_release(); }

  // To stand between other instructions' writing and tile instructions' reading of memory, and the other way
  // round: compilers do not see what the latter touch.
  static void order_memory() { asm volatile("" : : : "memory"); }
};

}  // namespace troupe::cpu::avx512
