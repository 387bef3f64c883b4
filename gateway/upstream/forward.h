#pragma once

// One try of one request at one worker: sends the client's bytes over a pooled connection and streams the
// answer back as it comes, each read waiting for the write before it (that is the backpressure). It reports
// how the try ended; from exactly that route/request/retry.h decides whether to try again.
//
// Until something was sent to the client the whole request can be tried elsewhere, so the head waits: a whole
// answer is read up to `whole_bytes_max` before its head goes out, and a stream's head goes with its first
// event; a foreign worker's with its first content (answer_content.h). A stream is passed on in whole events,
// so that another worker can continue it, or an error event follow, wherever the worker breaks off.

#include "gateway/upstream/forward_types.h"

namespace troupe {

// Throws only what Exchange does: the client has disconnected, or this task was cancelled.
Task<ForwardResult> forward_once(Exchange& exchange, HttpClient& client, ForwardInput& input);

}  // namespace troupe
