#pragma once

// When an attempt that says nothing has failed.
//
// A worker of ours sends heartbeats in its streams, so a few of them missing are a hang. A server of another
// kind only answers: it may be so full that a first token takes minutes, and is waited for while its probes
// are answered, and given up once they have found it dead. One that has begun its answer has read the prompt
// and has no more to wait for.

#include <cstddef>

#include "common/core/time.h"

namespace troupe::route {

struct StallOptions {
  // A worker of ours that is silent for this long in mid-stream hangs, but not before another can answer.
  Duration silence_max = std::chrono::milliseconds(400);
  // A worker of another kind that has sent nothing of an answer for this long is asked after, and hangs where
  // a probe has failed; 0: until probes have found it dead.
  Duration foreign_silence_max = std::chrono::seconds(60);
  // The same once it has begun its answer; 0: it is waited for.
  Duration foreign_stall_max = std::chrono::seconds(120);
};

// After so long without a byte an attempt is judged, and again as long after that.
Duration silence_timeout(const StallOptions& options, bool is_troupe_worker);

// A node as its probes and other streams have it.
struct NodeStatus {
  bool is_troupe_worker = false;  // it can resume, and sends heartbeats where asked
  bool heartbeats = false;        // some stream of it has brought heartbeats
  bool suspect = false, dead = false;
};

struct StallCheck {
  NodeStatus node;
  bool heartbeats_asked = false;  // for this stream,
  bool heartbeats_seen = false;   // and they have come
  bool began = false;             // the attempt has sent some of its answer
};

struct StallVerdict {
  bool hangs = false;   // to be given up for another node
  bool blamed = false;  // HealthEvent::kSilent
  bool probe_now = false;
  bool hopeless = false;  // to be given up though there is no other
};

// A worker of another kind has sent nothing for StallOptions' bounds:
struct ForeignSilence {
  bool over_silence_max = false;  // foreign_silence_max
  bool stalled =
      false;  // it has begun its answer, and foreign_stall_max, longer than any two tokens are apart
};
StallVerdict check_stall(const StallCheck& check, const ForeignSilence& silence);

// One attempt's. Adds up how long nothing has come.
class StallWatch {
 public:
  // Nothing has come for silence_timeout() since the last byte or the last call. `bytes`: of the attempt so
  // far.
  StallVerdict silent(const StallOptions& options, const StallCheck& check, size_t bytes);

 private:
  size_t bytes_ = 0;   // at the last call,
  Duration silent_{};  // and for how long there have been no others since
};

}  // namespace troupe::route
