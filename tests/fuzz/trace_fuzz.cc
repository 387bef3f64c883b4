// Files that capacity planners hand to the simulator: lines of a trace, a table of lengths, and a file of
// faults. A line is refused, or what it says is written again as a line that says the same, and joined with
// all lines before it has as many ids as it had; faults that parse can be checked against any fleet.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/fleet/faults.h"
#include "sim/trace/csv_trace.h"
#include "sim/trace/lengths_only.h"
#include "sim/trace/trace.h"
#include "sim/trace/trace_join.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_lengths(troupe::sim::LengthsOnly& lengths, troupe::sim::TraceRequest request) {
  require(request.blocks.empty() && request.output_blocks.empty());
  const int32_t block = request.block_tokens, whole = request.input_tokens / block;
  constexpr int32_t kQuick = 4096;  // blocks: a fuzzer's time is for other lines
  if ((request.input_tokens + request.output_tokens) / block > kQuick) return;
  lengths.name_blocks(request);
  require(request.blocks.size() == static_cast<size_t>(whole));
  require(request.output_blocks.size() ==
          static_cast<size_t>((request.input_tokens + request.output_tokens) / block - whole));
}

void check_line(troupe::sim::TraceLineParser& parser, troupe::sim::LengthsOnly& lengths,
                std::string_view line) {
  troupe::sim::TraceRequest request, again;
  troupe::sim::RecordedFacts facts;
  const troupe::Status parsed = parser.parse(line, request, &facts);
  if (!parsed.ok()) {
    require(!parsed.message().empty());
    return;
  }
  require(request.input_tokens > 0 && request.output_tokens >= 0 && request.block_tokens > 0);
  const size_t whole = static_cast<size_t>(request.input_tokens) / static_cast<size_t>(request.block_tokens);
  if (facts.has_ids) require(request.blocks.size() == whole || request.blocks.size() == whole + 1);
  if (!facts.has_ids) check_lengths(lengths, request);
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

// The same text as a table: a heading, then a request a line.
void check_table(troupe::sim::LengthsOnly& lengths, std::string_view text) {
  const size_t heading_end = std::min(text.find('\n'), text.size());
  if (!troupe::sim::CsvTrace::is_heading(text.substr(0, heading_end))) return;
  auto table = troupe::sim::CsvTrace::parse_heading(text.substr(0, heading_end));
  if (!table.ok()) return require(!table.status().message().empty());
  troupe::sim::TraceRequest request;
  troupe::sim::RecordedFacts facts;
  for (size_t at = heading_end + 1; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const troupe::Status parsed = table->parse(text.substr(at, end - at), request, facts);
    require(parsed.ok() || !parsed.message().empty());
    if (parsed.ok()) {
      require(request.at >= troupe::Duration::zero() && request.input_tokens > 0 &&
              request.output_tokens >= 0);
      require(!facts.has_ids && request.prefix_tokens <= request.input_tokens);
      check_lengths(lengths, request);
    }
    at = end + 1;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  troupe::sim::TraceLineParser parser;
  troupe::sim::TraceJoin join;
  troupe::sim::LengthsOnly lengths;
  check_table(lengths, text);
  for (size_t at = 0; at < size;) {
    const size_t end = std::min(text.find('\n', at), size);
    check_line(parser, lengths, text.substr(at, end - at));
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
