#pragma once

// Requests to simulate, one after the other in order of time: from trace files, or synthetic (workload.h). A
// source is read once, forwards, and holds no more than one tick of requests, so ten million of them cost no
// memory.
//
// A trace is JSON lines, gzipped or not, in Mooncake's form plus what it lacks:
//
// clang-format off
//   {"timestamp": 27000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 14, 15, …]}
//     timestamp         ms, not falling; a fraction is allowed. The first one is the trace's begin.
//     input_length      prompt tokens, >= 1
//     output_length     tokens answered, >= 0
//   optional:
//     hash_ids          one id a block of the prompt, cumulative: an id covers its block and all before it,
//                       so equal ids mean equal prefixes. As many as the prompt has blocks, the partial last
//                       one counted or not. Without them only lengths are known: prompts share what session,
//                       and set with prefix_length, imply, and else nothing (lengths_only.h)
//     block_size        tokens a block; where absent 512 (Mooncake's), or 16 without hash_ids
//     set, session      string or whole number: the persona prefix and the conversation. Also session_id
//     key               string or whole number: the name of the client's API key
//     turn              of the conversation, from 1
//     prefix_length     tokens of the persona prefix, which the set names
//     output_hash_ids   ids of the blocks that the answer completes: a node holds them beyond the prompt
//   of records (gateway/telemetry/trace_writer.h says more), for records of several gateways to be joined:
//     salt              names the ids' salt: only those of one salt can be compared
//     status            HTTP's, of the answer; a failed prompt that comes again soon is one request
//     unfinished        true: it was running when the gateway stopped
//     message_ends, message_ids, message_answers
//                       of every message of the prompt the token it ends with and an id of all text up to
//                       there; which ones, from 0, the assistant gave
// clang-format on
//
// or a table with a heading and lengths only: csv_trace.h.
//
// Source of the form: Qin et al., "Mooncake", FAST '25, artifact FAST25-release/traces.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/core/time.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // Fills `out` (its vectors' memory is reused) with the next request; false at the end. `at` never falls.
  virtual StatusOr<bool> next(TraceRequest& out) = 0;
};

struct TraceOptions {
  double rate_scale = 1;  // > 0: time runs this much faster
  Duration spread{};  // requests of one timestamp are spread evenly over this, or up to the next timestamp
  bool skip_bad = false;             // unusable lines, up to half of all, are counted instead of refused
  int64_t requests_max = INT64_MAX;  // bound of the requests read
  int64_t model_tokens_max = 0;      // longer prompts and answers are counted, for a note; 0: none
};

class TraceReader final : public RequestSource {
 public:
  static constexpr size_t kLineBytesMax = size_t{16} << 20;
  static constexpr int64_t kTokensMax = TraceRequest::kTokensMax;
  // Bound from the first request to the last, rate-scaled: every second of a run is recorded.
  static constexpr Duration kSpanMax = std::chrono::hours(24 * 14);

  static constexpr size_t kFilesMax = 256;

  // kNotFound / kInvalidArgument name the file.
  static StatusOr<std::unique_ptr<TraceReader>> open(const std::string& path, const TraceOptions& options);
  // Several gateways' records of one time as one trace, by their timestamps. Errors, now or during reading,
  // if they cannot be one: a file twice, other blocks, another salt, or years apart.
  static StatusOr<std::unique_ptr<TraceReader>> open_all(const std::vector<std::string>& paths,
                                                         const TraceOptions& options);
  ~TraceReader() override;
  // Errors: "<path>:<line>: field 'x': …, and what would be right". A line with a timestamp far ahead is
  // recognised under skip_bad alone, by the lines behind it.
  StatusOr<bool> next(TraceRequest& out) override;
  int64_t skipped_count() const;  // under skip_bad
  // Requests that no model of model_tokens_max tokens can answer, or not to their end.
  struct TooLong {
    int64_t prompts = 0;     // without room for a token
    int64_t answers = 0;     // others with more tokens than room
    std::string first_path;  // of the first of either kind
    int64_t first_line = 0;
  };
  const TooLong& too_long() const;
  // Notes on the files for a reader of the report, a sentence each.
  std::vector<std::string> notes() const;

 private:
  struct Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Parses one line without its newline into a request at its own timestamp (not spread, not scaled). `scratch`
// keeps the parser's memory between lines.
class TraceLineParser {
 public:
  TraceLineParser();
  ~TraceLineParser();
  Status parse(std::string_view line, TraceRequest& out, RecordedFacts* facts = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Names for a written line; empty: left out.
struct TraceNames {
  std::string_view set, session;
  std::string_view key{};  // empty: none
};
// Appends `request` as a trace line with its newline. parse() of it gives the same request.
void append_trace_line(std::string& out, const TraceRequest& request, const TraceNames& names);

}  // namespace troupe::sim
