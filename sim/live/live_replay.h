#pragma once

// The same requests against a live gateway (or any OpenAI-like server), open loop: each is sent when it is
// due, whatever became of those before. Gives the same Result as a simulated run, so that the two stand side
// by side.
//
// Prompts are text made from the trace's block ids (prompt_text.h), and a later turn of a conversation quotes
// what the worker answered to the one before, as a client does (conversations.h).

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "common/net/http_client.h"
#include "sim/fleet/request_lines.h"
#include "sim/fleet/result.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

struct LiveReplayOptions {
  std::vector<Endpoint> endpoints;       // gateways of one fleet: requests go to them in turns
  std::shared_ptr<const TlsSource> tls;  // for those with https
  // A request that breaks off without an answer (connection refused, reset, cut) is sent so many times more,
  // each time to the next of the endpoints. An answer, whatever its status, is final.
  int64_t retries = 0;
  double fault_at_s = -1;     // something is broken then: the Result has figures of the seconds around it
  std::string model;          // empty: the first that the server lists
  bool chat = true;           // the set's prefix as system message, then turns; else one plain prompt
  int64_t connections = 512;  // requests in flight; what is due beyond is not sent and counts as lost
  double timeout_s = 120;
  double warmup_s = 0, slo_ttft_ms = 500, slo_tpot_ms = 30;
  int64_t pooled_kv_tokens = -1;  // of all workers, for pooled_lru_hit; -1: not known, and there is none
  OnRequest on_request;           // warm-up included
};

// Sends all of `source` and waits for the answers. Errors: the source's, or a server without a model; what
// becomes of single requests is in the Result. Reasons of lost ones are said on stderr.
StatusOr<Result> drive(RequestSource& source, const LiveReplayOptions& options);

}  // namespace troupe::sim
