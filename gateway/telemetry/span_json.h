#pragma once

// A request's spans as OTLP has them in JSON (https://opentelemetry.io/docs/specs/otlp/): ids in hex, times
// as strings of nanoseconds, 64-bit integers as strings, enums as numbers. Names are OpenTelemetry's semantic
// conventions (http.*, url.*, server.*, client.*, gen_ai.*), and troupe.* for what only we have:
//
//   POST /v1/chat/completions   server; its parent is the client's span, where he told one
//     parse, choose             what the gateway itself computes: reading and keying, deciding on a node
//     queue                     where it waited for room at the workers
//     chat demo                 client; one for each worker asked. The worker is told it as its parent.
//       first_byte              event, on the server's span too
//
// No text of prompts or answers, and of keys their names.

#include <cstddef>
#include <string>
#include <string_view>

#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/request_record.h"

namespace troupe {

struct SpanText {
  std::string json;  // objects, with commas between them
  size_t count = 0;
};

// REQUIRES: trail.trace.
SpanText spans_of(const RequestRecord& request_record, const RequestFacts& facts);

// What a batch begins and ends with: {"resourceSpans":[{"resource":…,"scopeSpans":[{"scope":…,"spans":[ …
// ]}]}]}
std::string batch_begin(std::string_view service_name, std::string_view instance_id);
inline constexpr std::string_view kBatchEnd = "]}]}]}";

}  // namespace troupe
