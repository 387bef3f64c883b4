#pragma once

// A request of a trace, and the facts about it that only some traces have.

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/core/time.h"

namespace troupe::sim {

struct TraceRequest {
  static constexpr int64_t kTokensMax = 16 << 20;  // of a prompt or an answer
  static constexpr int64_t kBlockTokensMax = 1 << 16;
  static constexpr double kTimestampMsMax = 9e12;  // 300 years: beyond it, nanoseconds overflow

  Duration at{};  // since the trace began, spread and rate-scaled
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  int32_t block_tokens = 512;
  int32_t turn = 0;                     // 0: unknown
  int32_t prefix_tokens = 0;            // of the set; 0: unknown
  uint64_t set = 0, session = 0;        // id_of() of the line's names; 0: none
  uint64_t key = 0;                     // the same
  std::vector<uint64_t> blocks;         // floor or ceil(input_tokens / block_tokens) cumulative ids
  std::vector<uint64_t> output_blocks;  // of the blocks after floor(input_tokens / block_tokens), in order

  void reset();  // as if new, but with its vectors' memory
};

// Further facts of a line: its form, and what records have.
struct RecordedFacts {
  bool has_ids = true;           // hash_ids were there
  bool has_block_size = false;   // block_size was there
  uint64_t salt = 0;             // id_of() its name; 0: none
  bool answered = false;         // completely, as far as the line shows
  bool failed = false;           // not answered, though the client stayed
  std::vector<uint64_t> ids;     // one per message
  std::vector<int32_t> ends;     // one per message, not falling; the last is input_tokens
  std::vector<int32_t> answers;  // indices of the assistant's messages, rising

  void reset();  // as if new, but with its vectors' memory
};

// A name (or the digits of a number) as an id, never 0.
uint64_t id_of(std::string_view name);

}  // namespace troupe::sim
