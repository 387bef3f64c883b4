// A client's traceparent header: whatever it is it is understood or passed over, never half. What is
// understood has ids that are not zero and only flags that are known, and is understood alike when it is
// passed on.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gateway/telemetry/trace_context.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using troupe::TraceContext;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto context = troupe::parse_traceparent(text);
  troupe::HeaderList headers{{"traceparent", std::string(text)}};
  require(troupe::trace_context_of(headers) == context);
  headers.emplace_back("traceparent", std::string(text));
  require(!troupe::trace_context_of(headers));
  if (!context) return 0;
  require((context->trace_hi | context->trace_lo) != 0 && context->span != 0);
  require((context->flags & ~(TraceContext::kSampled | TraceContext::kRandom)) == 0);
  const std::string header = context->header();
  require(troupe::parse_traceparent(header) == context);
  // Version 00 is passed on as it came, but for unknown flags.
  if (text.starts_with("00-"))
    require(text.size() == header.size() && header.substr(0, 53) == text.substr(0, 53));
  require(header.find(context->trace_id()) == 3 &&
          header.find(troupe::span_id(context->span)) != header.npos);
  return 0;
}
