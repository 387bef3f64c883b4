#pragma once

// What goes to etcd and comes from it over its HTTP gateway (/v3/…), as text: no sockets here. The gateway
// writes 64-bit integers as strings and leaves out what is false, zero or empty; keys and values are base64.
// Answers are read strictly and within bounds, the fields that we know; others are left alone. Errors name
// the field.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe::etcd {

// A value is at most so long: etcd refuses requests of more than 1.5 MiB.
inline constexpr size_t kValueBytesMax = 1'500'000;
inline constexpr size_t kAnswerBytesMax = 32u << 20;

struct KeyValue {
  std::string key, value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
};

// A key, or all from `begin` to before `end`.
struct KeyRange {
  std::string begin, end;
  bool keys_only = false;
  static KeyRange key(std::string name) { return {std::move(name), "", false}; }
  // REQUIRES: a prefix that does not end in 0xff.
  static KeyRange prefix(std::string name);
};

struct Put {
  std::string key, value;
  int64_t lease = 0;
};

// Where every key is as it is compared, `puts` and `deletes` are done and `reads` read; else `else_reads`.
struct Txn {
  struct Compare {
    enum class Of { kCreateRevision, kModRevision };
    std::string key;
    Of of = Of::kCreateRevision;
    int64_t revision = 0;  // 0: there is no such key
  };
  std::vector<Compare> compares;
  std::vector<Put> puts;
  std::vector<std::string> deletes;
  std::vector<KeyRange> reads, else_reads;
};

std::string put_body(const Put& put);
std::string txn_body(const Txn& txn);
std::string grant_body(std::chrono::seconds ttl);
std::string lease_body(int64_t id);
// Changes of these ranges, of `from_revision` and later.
std::string watch_body(std::span<const KeyRange> ranges, int64_t from_revision);

struct TxnAnswer {
  int64_t revision = 0;
  bool succeeded = false;
  std::vector<KeyValue> found;  // by all reads, in their order
};
StatusOr<TxnAnswer> parse_txn(std::string_view json);

struct Lease {
  int64_t id = 0;
  std::chrono::seconds ttl{0};  // 0: there is none of this id
};
StatusOr<Lease> parse_grant(std::string_view json);
StatusOr<Lease> parse_keep_alive(std::string_view json);

struct WatchEvent {
  bool deleted = false;
  KeyValue kv;  // deleted: its key and mod_revision
};
struct WatchMessage {
  int64_t revision = 0;
  bool canceled = false;  // by etcd: what is asked for is no more, or it has lost its leader
  std::vector<WatchEvent> events;
};
StatusOr<WatchMessage> parse_watch(std::string_view json);

// What an answer that is not 200 says; "" where it says nothing.
std::string error_text(std::string_view json);

// Cuts a stream of messages, one a line, however it comes in pieces.
class Lines {
 public:
  explicit Lines(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}
  // kResourceExhausted: a line is longer than it may be; nothing more comes then.
  Status feed(std::string_view piece);
  // The next whole line that is not empty; false: there is none yet. Valid until the next call.
  bool next(std::string_view& line);

 private:
  size_t line_bytes_max_;
  std::string buffer_;
  size_t read_ = 0;     // of the buffer, up to here
  size_t scanned_ = 0;  // no end of a line before
};

}  // namespace troupe::etcd
