// What capacity planners hand to the simulator: lines of a trace, and a file of faults. A line is refused, or
// what it says is written again as a line that says the same, and joined with all lines before it has as many
// ids as it had; faults that parse can be checked against any fleet.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/fleet/faults.h"
#include "sim/trace/trace.h"
#include "sim/trace/trace_join.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_line(troupe::sim::TraceLineParser& parser, std::string_view line) {
  troupe::sim::TraceRequest request, again;
  const troupe::Status parsed = parser.parse(line, request);
  if (!parsed.ok()) {
    require(!parsed.message().empty());
    return;
  }
  require(request.input_tokens > 0 && request.output_tokens >= 0 && request.block_tokens > 0);
  const size_t whole = static_cast<size_t>(request.input_tokens) / static_cast<size_t>(request.block_tokens);
  require(request.blocks.size() == whole || request.blocks.size() == whole + 1);
  std::string written;
  troupe::sim::append_trace_line(written, request, {});
  require(!written.empty() && written.back() == '\n');
  written.pop_back();
  require(parser.parse(written, again).ok());
  require(again.input_tokens == request.input_tokens && again.output_tokens == request.output_tokens);
  require(again.block_tokens == request.block_tokens && again.turn == request.turn);
  require(again.blocks == request.blocks && again.output_blocks == request.output_blocks);
}

void check_join(troupe::sim::TraceLineParser& parser, troupe::sim::TraceJoin& join, std::string_view line) {
  troupe::sim::TraceRequest request;
  troupe::sim::RecordedFacts facts;
  if (!parser.parse(line, request, &facts).ok()) return;
  const troupe::sim::TraceRequest before = request;
  if (join.is_retry(request, facts)) return;
  join.rename(request, facts);
  require(request.blocks.size() == before.blocks.size() && request.output_blocks == before.output_blocks);
  require(request.input_tokens == before.input_tokens && request.prefix_tokens <= request.input_tokens);
  require(before.prefix_tokens > 0 || request.prefix_tokens == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  troupe::sim::TraceLineParser parser;
  troupe::sim::TraceJoin join;
  for (size_t at = 0; at < size;) {
    const size_t end = std::min(text.find('\n', at), size);
    check_line(parser, text.substr(at, end - at));
    check_join(parser, join, text.substr(at, end - at));
    at = end + 1;
  }
  const auto faults = troupe::sim::parse_faults(text, "faults.jsonl");
  if (!faults.ok()) {
    require(faults.status().message().find("faults.jsonl:") == 0);
    return 0;
  }
  double last = 0;
  for (const troupe::sim::Fault& fault : *faults) {
    require(std::isfinite(fault.at_s) && fault.at_s >= last && fault.factor >= 1 && fault.for_s >= 0);
    last = fault.at_s;
  }
  (void)troupe::sim::check_faults(*faults, 4, 1);
  return 0;
}
