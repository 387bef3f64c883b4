#pragma once

// One file of a trace, line by line: the input of TraceReader.

#include <zlib.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/trace/csv_trace.h"
#include "sim/trace/lengths_only.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

struct TraceLine {
  TraceRequest request;  // at its own timestamp
  RecordedFacts facts;
  int64_t number = 0;  // in its file, from 1
};

// Not thread-safe.
class TraceFile {
 public:
  static StatusOr<std::unique_ptr<TraceFile>> open(const std::string& path, const TraceOptions& options);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Reads the next usable line into `out`, whose memory is reused; false at the end. `at` never falls.
  StatusOr<bool> next(TraceLine& out);
  const std::string& path() const { return path_; }
  int64_t skipped_count() const { return skipped_; }
  // kInvalidArgument: "<path>:<line>: …"
  Status error(const Status& status, int64_t number) const;

 private:
  TraceFile(std::string path, const TraceOptions& options, gzFile file);
  Status refuse(const Status& status, int64_t number);
  Status parse(TraceLine& out);
  StatusOr<bool> read_line();
  StatusOr<bool> read_parsed(TraceLine& out);
  StatusOr<bool> take_ahead(TraceLine& out);
  Status check_time(Duration at) const;
  Status check_enough() const;

  const std::string path_;
  const bool skip_bad_;
  const double rate_scale_;
  const gzFile file_;
  TraceLineParser parser_;
  std::optional<CsvTrace> table_;                     // once its heading was read
  int32_t block_tokens_ = LengthsOnly::kBlockTokens;  // of a line that has neither ids nor their size
  std::vector<char> chunk_ = std::vector<char>(1 << 18);
  size_t chunk_at_ = 0, chunk_end_ = 0;
  std::string line_;
  bool line_too_long_ = false;  // its rest was skipped
  int64_t line_number_ = 0;
  int64_t line_count_ = 0;  // without empty ones
  int64_t skipped_ = 0;
  std::string first_refusal_;
  std::deque<TraceLine> lines_ahead_;
  Duration last_at_{};
  std::optional<Duration> first_at_;
  bool ended_ = false;  // the file is read to its end
};

}  // namespace troupe::sim
