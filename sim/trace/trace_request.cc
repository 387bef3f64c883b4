#include "sim/trace/trace_request.h"

#include <utility>

#include "common/core/block_hash.h"

namespace troupe::sim {

uint64_t id_of(std::string_view name) {
  const uint64_t id = hash_bytes(name).lo;
  return id == 0 ? 1 : id;
}

void TraceRequest::reset() {
  TraceRequest fresh;
  fresh.blocks = std::move(blocks);
  fresh.output_blocks = std::move(output_blocks);
  fresh.blocks.clear();
  fresh.output_blocks.clear();
  *this = std::move(fresh);
}

void RecordedFacts::reset() {
  RecordedFacts fresh;
  fresh.ids = std::move(ids);
  fresh.ends = std::move(ends);
  fresh.answers = std::move(answers);
  fresh.ids.clear();
  fresh.ends.clear();
  fresh.answers.clear();
  *this = std::move(fresh);
}

}  // namespace troupe::sim
