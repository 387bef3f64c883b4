#pragma once

// Writes requests as lines of a trace that troupe-sim replays (sim/trace/trace.h has the format), with the
// decision and measurements besides:
//
// clang-format off
//   {"timestamp":1763777777123.456,"input_length":412,"output_length":24,"block_size":16,
//    "set":"…","session":"…","key":"…","turn":2,"prefix_length":300,"hash_ids":[…],"output_hash_ids":[…],
//    "message_ends":[300,412],"message_ids":[…],"message_answers":[],"salt":"…",
//    "model":"…","node":"127.0.0.1:31000","branch":"session","attempts":1,"expected":384,
//    "cached":384,"status":200,"ttft_ms":3.1,"duration_ms":41.0}
//
//   timestamp      ms since 1970, of the arrival; lines are in this order
//   message_…      where each message of the prompt (or piece of text, and tools first) ends, in tokens; the
//                  hash of all text up to there; and which ones, from 0, the assistant gave
//   key            the name of the request's API key; absent without one
//   salt           names the salt of the hashes: only those of one salt can be compared
//   node …         up to expected: absent where nothing was sent
//   cached         absent if the worker does not report it, ttft_ms if it did not begin to answer
//   status         499: the client disconnected; 502 also where a stream broke off
//   estimated      true: the answer had no usage, so lengths in tokens are estimated
//   unfinished     true: still running when its line had to be written
// clang-format on
//
// The gateway has no tokenizer, so a block's id is a hash of the text that it should cover: each message gets
// a length in tokens once, from the first answer's own count, and keeps it, so equal beginnings have equal
// ids. A worker's answer has ids by its place (its text is not read), which the turn that quotes it gets too.
// The blocks of two different answers to one prompt have the same ids.
//
// Another gateway that saw a persona first in another prompt gives its card a slightly different length, and
// ids to blocks elsewhere in the text. The messages' own hashes do not depend on that: by them several
// records are joined (sim/trace/trace_join.h).

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/core/block_hash.h"
#include "common/core/lru_map.h"
#include "gateway/route/key/token_estimate.h"
#include "gateway/telemetry/prompt_fingerprint.h"

namespace troupe {

struct TrafficArrival {
  uint64_t number = 0;  // rises by one per request
  int64_t unix_us = 0;
  std::string model;
  Hash128 set;              // zero: none
  std::string key;          // the API key's name, empty: none
  Hash128 session;          // zero: none. Not the router's: a user's name could be guessed from that
  size_t prefix_bytes = 0;  // of the set's prefix
  PromptFingerprint marks;
};

struct TrafficOutcome {
  std::string node, branch;  // empty: nothing was sent
  size_t attempts = 0;
  int64_t expected = 0;  // cached tokens
  int status = 0;
  std::optional<route::AnswerCounts> counts;
  std::optional<int64_t> first_byte_us;  // since the arrival; none: no answer began
  int64_t duration_us = 0;
};

// Not thread-safe.
class TraceWriter {
 public:
  // Bound of the requests whose line waits for their end, or for an earlier request's; beyond it the oldest
  // is written unfinished.
  static constexpr size_t kHeldBytesMax = size_t{64} << 20;
  explicit TraceWriter(size_t held_bytes_max = kHeldBytesMax, std::string salt_name = {});

  void arrived(TrafficArrival arrival);
  // Ignores the end of an unknown (or forgotten) arrival.
  void ended(uint64_t number, TrafficOutcome outcome);
  // Appends the due lines to `out`: all before the first request that still runs.
  void take(std::string& out);
  // Appends all lines, running requests too.
  void take_all(std::string& out);
  uint64_t lines() const { return lines_; }

 private:
  struct Held {
    TrafficArrival arrival;
    std::optional<TrafficOutcome> outcome;
    size_t bytes() const { return sizeof(Held) + arrival.marks.heap_bytes(); }
  };
  struct Place {  // end of a part, in tokens
    int64_t tokens = 0;
    bool asked = false;  // a prompt ended here: an assistant's message after it was its answer
    int64_t answer_tokens = 0;
  };
  struct Spans;

  void write(std::string& out, const Held& held);
  Spans place(const TrafficArrival& arrival, int64_t prompt_tokens);

  const size_t held_bytes_max_;
  const std::string salt_name_;
  size_t held_bytes_ = 0;
  std::map<uint64_t, Held> held_;  // by number: in order of arrival
  route::LruMap<Place> places_;    // by the chain up to the part's end
  route::TokenRatio ratio_;
  double answer_tokens_ = 128;  // mean
  uint64_t lines_ = 0;
};

}  // namespace troupe
