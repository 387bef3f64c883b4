#pragma once

// --requests FILE: the outcome of each request, a line of JSON in the order in which they ended. Members are
// named as in a gateway's record (gateway/telemetry/trace_writer.h), so that one reader reads both:
//
// clang-format off
//   {"number":7,"timestamp":1234.567,"turn":2,"input_length":412,"output_length":24,"node":"n3",
//    "branch":"session","attempts":1,"expected":384,"cached":384,"ttft_ms":3.1,"duration_ms":41.0}
//
//   number         its place in the trace, from 1
//   timestamp      ms since the run began
//   output_length  tokens of the answer, absent if not reported (a live answer that broke off)
//   node …         the last that had it; branch and expected are the gateway's, absent if it sent none
//   cached         tokens found where its first token came from, absent if not reported
//   ttft_ms        absent where no token came
//   queue_ms       its wait in its gateway's queue, absent if it did not wait (of a live run: not known)
//   lost           true: no answer, or not a whole one
//   refused        why the gateway's queue refused it (of a live run: not known)
//   status         HTTP's, of an error that was the answer
//   unfinished     true: its answer was running when the run ended
// clang-format on

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/time.h"
#include "sim/fleet/sim_admission.h"

namespace troupe::sim {

enum class RequestEnd : uint8_t { kAnswered, kLost, kRefused, kUnfinished };

struct RequestLine {
  int64_t number = 0;
  Duration arrived{};  // since the run began, as the next two
  std::optional<Duration> first;
  Duration ended{};
  int32_t turn = 0;  // 0: unknown
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;          // -1: not reported
  int64_t cached_tokens = -1;  // -1: not reported
  int64_t attempts = 0;
  int32_t simulated_node = -1;
  std::string_view live_node;  // instead of the number
  std::string_view branch;
  int64_t expected_tokens = -1;  // -1: not reported
  RequestEnd end = RequestEnd::kAnswered;
  QueuePlace place;     // at a simulated gateway
  int live_status = 0;  // of an error that was the answer; 0: none
};
// Called as requests end; the argument is valid during the call.
using OnRequest = std::function<void(const RequestLine&)>;

// Appends the line and its newline.
void append_request_line(std::string& out, const RequestLine& line);

}  // namespace troupe::sim
