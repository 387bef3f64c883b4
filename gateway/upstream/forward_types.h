#pragma once

// The input of one try at a worker, and its result (forward.h).

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
#include "gateway/upstream/answer_content.h"
#include "gateway/upstream/model_rename.h"
#include "gateway/upstream/resume_filter.h"
#include "gateway/upstream/stream_events.h"
#include "gateway/upstream/usage.h"

namespace troupe {

inline constexpr size_t kHeldBodyMax = size_t{64} << 10;  // of an answer that is held, or read by the gateway

// One try as it goes; it outlives a try that is cancelled.
struct TryProgress {
  bool enough = false;       // the client has all that it is to have: the worker is left
  size_t bytes = 0;          // of the answer that have come, passed on or not
  bool began = false;        // some of the answer has come, perhaps no content yet (answer_content.h)
  bool client_done = false;  // the client has the stream's last event, and may close: what follows is no part
                             // of the answer
};

struct ForwardInput {
  ClientRequest request;      // as sent to the worker
  HeaderList answer_headers;  // the gateway's own, for the client; moved from
  Deadline deadline;
  size_t whole_bytes_max = 1u << 20;
  // Beyond this time a write to the client has stalled the worker, which may break off for it.
  Duration client_stall = std::chrono::seconds(5);
  std::function<void()> on_first_byte;  // the worker has begun to answer
  // Counts the answer's bytes that went to the client, even one that has disconnected. null: not needed.
  UsageTap* passed = nullptr;
  // The worker is of another kind: it may answer what no other does (route::node_specific_rejection()),
  // report errors in other forms, send events without content before it has begun, and a 200 that is no
  // answer.
  bool foreign = false;
  // Reads the worker's answer (200), whole, and gives what the client gets; nullopt: it is none, and
  // `missing` (an error's JSON, with this status) is passed on if no other worker does better. So is it for a
  // 404, 405 and 501. Empty: answers are passed on as they come.
  std::function<std::optional<std::string>(std::string_view body)> translate;
  std::string missing;
  int missing_status = 501;
  // The model's name in what is sent to the client, answers of more than whole_bytes_max excepted, where the
  // worker has another one.
  std::optional<std::string> rename;
  // A foreign worker's answer of a form that is known has content, or is none, and an end, without which it
  // was cut.
  AnswerForm form = AnswerForm::kOther;
  bool streams = false;             // the client has asked for a stream,
  bool asks_whole = false;          // or has surely not: a foreign worker's is no answer
  bool any_path = false;            // not every server knows the request's path
  int64_t choices = 1;              // asked for: each has a finish reason
  TryProgress* progress = nullptr;  // null: not needed
  // Removes and keeps the ids (x-troupe-ids) that the worker was asked for. null: it was not asked.
  ResumeTap* tap = nullptr;
  // Ends kSend, measures kRelay and pauses at the end. null: not measured.
  PhaseTimes* phases = nullptr;
};

struct ForwardResult {
  enum class End : uint8_t {
    kAnswered,  // the client has the whole answer
    kFailed,  // the answer is incomplete, and the client does not know: a stream may have begun (head_sent())
    kBroken,  // likewise after the first byte, and the client knows, as far as it can
  };
  End end = End::kFailed;
  int status = 0;               // of the answer; 0: none
  route::Failure failure;       // kFailed, kBroken
  Status error;                 // likewise
  bool client_stalled = false;  // the client held the worker back for longer than client_stall
  TimePoint sent_at{};          // the last event to the client
  // For kFailed by status: the worker's answer, passed on if no other worker does better. Its body is empty
  // if it was, broke off, or is too large to keep. In a stream that has begun: the JSON of its error event.
  bool held = false;
  HeaderList held_headers;
  std::string held_body;
  std::optional<route::AnswerCounts> counts;  // from `tap` or `passed`, once the answer has ended
};

}  // namespace troupe
