#include "gateway/telemetry/trace_context.h"

#include <sys/random.h>

#include <cerrno>
#include <system_error>

namespace troupe {

namespace {

constexpr size_t kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53, kLength = 55;
constexpr uint8_t kKnownFlags = TraceContext::kSampled | TraceContext::kRandom;

void append_hex(std::string& out, uint64_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(value >> shift) & 15];
}

// Lower case only, as the standard demands.
std::optional<uint64_t> hex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

std::string span_id(uint64_t span) {
  std::string out;
  append_hex(out, span, 16);
  return out;
}

std::string TraceContext::trace_id() const {
  std::string out;
  out.reserve(32);
  append_hex(out, trace_hi, 16);
  append_hex(out, trace_lo, 16);
  return out;
}

std::string TraceContext::header() const {
  std::string out;
  out.reserve(kLength);
  out += "00-";
  append_hex(out, trace_hi, 16);
  append_hex(out, trace_lo, 16);
  out += '-';
  append_hex(out, span, 16);
  out += '-';
  append_hex(out, flags, 2);
  return out;
}

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < kLength) return std::nullopt;
  if (header[kTraceAt - 1] != '-' || header[kSpanAt - 1] != '-' || header[kFlagsAt - 1] != '-')
    return std::nullopt;
  const auto version = hex(header.substr(0, 2));
  if (!version || *version == 0xff) return std::nullopt;
  // A later version may have more after the known fields.
  const bool ends = header.size() == kLength;
  if (!ends && (*version == 0 || header[kLength] != '-')) return std::nullopt;
  const auto hi = hex(header.substr(kTraceAt, 16)), lo = hex(header.substr(kTraceAt + 16, 16));
  const auto span = hex(header.substr(kSpanAt, 16)), flags = hex(header.substr(kFlagsAt, 2));
  if (!hi || !lo || !span || !flags || (*hi | *lo) == 0 || *span == 0) return std::nullopt;
  TraceContext context;
  context.trace_hi = *hi;
  context.trace_lo = *lo;
  context.span = *span;
  context.flags = static_cast<uint8_t>(*flags & kKnownFlags);
  return context;
}

std::optional<TraceContext> trace_context_of(const HeaderList& headers) {
  const std::string* found = nullptr;
  for (const auto& [name, value] : headers) {
    if (name != "traceparent") continue;
    if (found != nullptr) return std::nullopt;
    found = &value;
  }
  return found == nullptr ? std::nullopt : parse_traceparent(*found);
}

uint64_t TraceIds::next() {
  while (true) {
    if (left_ == 0) {
      // So few bytes are never cut; the call blocks only before the kernel has any randomness.
      ssize_t got = 0;
      while ((got = getrandom(stock_.data(), sizeof stock_, 0)) < 0 && errno == EINTR) {
      }
      if (got != static_cast<ssize_t>(sizeof stock_))
        throw std::system_error(errno, std::generic_category(), "getrandom");
      left_ = stock_.size();
    }
    if (const uint64_t id = stock_[--left_]; id != 0) return id;
  }
}

TraceContext TraceIds::new_trace(double ratio) {
  TraceContext context;
  context.trace_hi = next();
  context.trace_lo = next();
  context.span = next();
  context.flags = TraceContext::kRandom;
  constexpr uint64_t kRandomBits = 56;
  const uint64_t random = context.trace_lo & ((uint64_t{1} << kRandomBits) - 1);
  if (static_cast<double>(random) < ratio * static_cast<double>(uint64_t{1} << kRandomBits))
    context.flags |= TraceContext::kSampled;
  return context;
}

}  // namespace troupe
