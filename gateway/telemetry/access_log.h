#pragma once

// --access-log: one line a request, whatever its outcome, in the form of the log (common/core/log.h):
//
// clang-format off
//   ts=… level=info event=request request=req-… trace=- client=10.0.0.7:51234 key=writers method=POST
//   path=/v1/chat/completions status=200 end=answered why=- in=8213 out=3120 ms=812.400 first_byte_ms=31.200
//   own_ms=0.061 queue_ms=0.000 model=demo set=… node=127.0.0.1:31000 branch=home attempts=1 resumes=0
//   expect=1470 cached=1472 prompt=1500 completion=64 stream=true persona=mora@3
// clang-format on
//
// All fields, always, in this order; "-" for an absent value. `ts` is when it ended; `in` is the body's
// bytes, `out` those of the answer with its head; `ms` to the answer's last byte, `own_ms` the gateway's own
// computing (parse, key, choice). No text of clients and models, and only the name of a key. A request that
// the HTTP layer refuses is a line of its own kind: event=malformed, with request, client, method, path,
// status and why.
//
// A thread writes them (queued_log.h): with a slow or full disk lines are dropped and counted.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/block_hash.h"
#include "common/net/http_server.h"
#include "gateway/telemetry/queued_log.h"
#include "gateway/telemetry/request_record.h"

namespace troupe {

inline constexpr std::string_view kAccessLogOff = "off";
inline constexpr std::string_view kAccessLogStderr = kLogToStderr;

// Facts of a request beside its record. Views, valid during a call; empty: absent.
struct RequestFacts {
  std::string_view request_id;
  std::string_view key;
  std::string_view method;
  std::string_view path;
  std::string_view model;
  std::string_view host;  // Host, as sent by the client
  std::string_view user_agent;
  Hash128 set;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  bool stream = false;
  TimePoint ended{};
};

// Both without the newline, and shorter than PIPE_BUF whatever is in them.
std::string access_line(const RequestRecord& request_record, const RequestFacts& facts, int64_t unix_ms);
std::string malformed_line(const HttpRefusal& refusal, int64_t unix_ms);

class AccessLog {
 public:
  static constexpr size_t kQueueBytesMax = QueuedLog::kQueueBytesMax;
  struct Parts {
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
  };
  // `path`: of a file, created with mode 0600, or kAccessLogStderr. Errors name it.
  static StatusOr<std::unique_ptr<AccessLog>> open(const std::string& path, const Parts& parts);

  // QueuedLog's.
  void add(std::string_view line) { lines_.add(line); }
  void reopen() { lines_.reopen(); }

 private:
  AccessLog(int fd, const std::string& path, const Parts& parts);

  QueuedLog lines_;
};

}  // namespace troupe
