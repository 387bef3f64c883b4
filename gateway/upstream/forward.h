#pragma once

// One try of one request at one worker: send the client's bytes over a pooled connection, stream the answer
// back as it comes, each read waiting for the write before it (that is the backpressure). Says how it ended;
// whether to try again is decided elsewhere (route/retry.h), from exactly that.
//
// Until something was sent to the client the whole request can be tried elsewhere, so the head waits: a whole
// answer is taken up to `whole_bytes_max` before its head goes out, and a stream's head goes with its first
// event. A stream is passed on in whole events, so that another worker can go on, or an error event follow,
// wherever the worker breaks off.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/core/status.h"
#include "common/core/time.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "gateway/route/request/retry.h"
#include "gateway/telemetry/phase_times.h"
#include "gateway/upstream/resume_filter.h"
#include "gateway/upstream/usage.h"

namespace troupe {

struct ForwardInput {
  ClientRequest request;      // as the worker gets it
  HeaderList answer_headers;  // ours, for the client; taken from here
  Deadline deadline;
  size_t whole_bytes_max = 1u << 20;
  // A write to the client that takes longer than this has stopped the worker, which may break off for it.
  Duration client_stall = std::chrono::seconds(5);
  std::function<void()> on_first_byte;  // the worker has begun to answer
  // Of its answer, what went to the client: also where the client is gone then. null: nobody asks.
  UsageTap* passed = nullptr;
  // The worker was asked for ids (x-troupe-ids), which are cut out here. null: it was not.
  ResumeTap* tap = nullptr;
  // Whose kSend ends here and whose kRelay this is; paused when this ends. null: nobody asks.
  PhaseTimes* phases = nullptr;
};

struct ForwardResult {
  enum class End : uint8_t {
    kAnswered,  // the client has the whole answer
    kFailed,    // the answer is not complete, and nobody was told: a stream may have begun (head_sent())
    kBroken,    // likewise after the first byte, and the client was told, as far as it can be
  };
  End end = End::kFailed;
  int status = 0;               // of the answer; 0: there was none
  route::Failure failure;       // kFailed, kBroken
  Status error;                 // likewise
  bool client_stalled = false;  // the client held the worker back for longer than client_stall
  TimePoint sent_at{};          // the last event to the client
  // kFailed by status: the worker's answer, to be passed on if nobody else does better. Its body is empty
  // where it was, broke off, or is too large to keep. In a stream that has begun: the JSON of its error
  // event.
  bool held = false;
  HeaderList held_headers;
  std::string held_body;
  std::optional<route::AnswerCounts> counts;  // of `tap` or `passed`, once the answer has ended
};

// Throws only what Exchange does: the client is gone, or this task was cancelled.
Task<ForwardResult> forward_once(Exchange& exchange, HttpClient& client, ForwardInput& input);

inline constexpr size_t kHeldBodyMax = size_t{64}
                                       << 10;  // of an answer that is kept to be passed on, or read

// A question whose answer the gateway itself reads: whatever the worker answered is held, in `failure` as a
// status unless that is 2xx (kAnswered).
Task<ForwardResult> ask_once(HttpClient& client, const ClientRequest& request, Deadline deadline,
                             size_t bytes_max = kHeldBodyMax);

// How much of `bytes` is whole events (up to and including the last blank line).
size_t whole_events(std::string_view bytes);
// The first error event in these whole events ("data: {"error"…", the way OpenAI-like servers tell what went
// wrong after the head); empty where there is none.
std::string_view error_event(std::string_view events);

}  // namespace troupe
