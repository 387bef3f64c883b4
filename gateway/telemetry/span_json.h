#pragma once

// A request's spans in OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/): ids in hex, times as strings
// of nanoseconds, 64-bit integers as strings, enums as numbers. Names are OpenTelemetry's semantic
// conventions (http.*, url.*, server.*, client.*, gen_ai.*), and troupe.* for our own:
//
// clang-format off
//   POST /v1/chat/completions   server; its parent is the client's span, if the client sent one
//     parse, choose             the gateway's computing: reading and keying, deciding on a node
//     queue                     the wait for room at the workers
//     chat demo                 client; one for each worker asked. The worker receives it as its parent.
//       first_byte              event, on the server's span too
// clang-format on
//
// No text of prompts or answers, and only the names of keys.

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

// REQUIRES: the record has a trace.
SpanText spans_of(const RequestRecord& request_record, const RequestFacts& facts);

// The beginning and end of a batch: {"resourceSpans":[{"resource":…,"scopeSpans":[{"scope":…,"spans":[ …
// ]}]}]}
std::string batch_begin(std::string_view service_name, std::string_view instance_id);
inline constexpr std::string_view kBatchEnd = "]}]}]}";

}  // namespace troupe
