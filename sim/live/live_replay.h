#pragma once

// Replays the same requests against a live gateway (or any OpenAI-like server), open loop: each is sent when
// it is due, whatever became of those before. Gives the same Result as a simulated run, so that the two can
// be compared.
//
// Prompts are text made from the trace's block ids (prompt_text.h), and a later turn of a conversation quotes
// the worker's answer to the one before, as a client does (client_conversations.h).

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
  std::vector<Endpoint> endpoints;       // gateways of one fleet, used in turn
  std::shared_ptr<const TlsSource> tls;  // for https endpoints
  // Retries of a request that breaks off without an answer (connection refused, reset, cut), each at the next
  // endpoint. An answer, whatever its status, is final.
  int64_t retries = 0;
  double fault_at_s = -1;     // time of a fault: the Result has figures of the seconds around it
  std::string model;          // empty: the first in the server's list
  bool chat = true;           // the set's prefix as system message, then turns; else one plain prompt
  int64_t connections = 512;  // most requests in flight; further ones are not sent and count as lost
  double timeout_s = 120;
  double warmup_s = 0, slo_ttft_ms = 500, slo_tpot_ms = 30;
  int64_t pooled_kv_tokens = -1;  // of all workers, for pooled_lru_hit; -1: unknown, no such figure
  OnRequest on_request;           // warm-up included
};

// Sends all of `source` and waits for the answers. Errors: the source's, or a server without a model; the
// outcome of single requests is in the Result. Reasons of lost ones are printed on stderr.
StatusOr<Result> drive(RequestSource& source, const LiveReplayOptions& options);

}  // namespace troupe::sim
