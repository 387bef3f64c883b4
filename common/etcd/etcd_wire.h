#pragma once

// Messages to and from etcd's HTTP gateway (/v3/…), as text: no sockets here. The gateway writes 64-bit
// integers as strings and omits values that are false, zero or empty; keys and values are base64. Known
// fields of answers are read strictly and within bounds; others are ignored. Errors name the field.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe::etcd {

// Limit of a value: etcd refuses requests of more than 1.5 MiB.
inline constexpr size_t kValueBytesMax = 1'500'000;
inline constexpr size_t kAnswerBytesMax = 32u << 20;

struct KeyValue {
  std::string key, value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t lease = 0;  // 0: none, it stays until it is deleted
};

// One key, or all keys in [begin, end).
struct KeyRange {
  std::string begin, end;
  bool keys_only = false;
  static KeyRange key(std::string name) { return {std::move(name), "", false}; }
  // REQUIRES: the prefix does not end in 0xff.
  static KeyRange prefix(std::string name);
};

struct Put {
  std::string key, value;
  int64_t lease = 0;
};

// If every comparison holds, etcd does `puts` and `deletes` and `reads`; else `else_reads`.
struct Txn {
  struct Compare {
    enum class Of { kCreateRevision, kModRevision };
    std::string key;
    Of of = Of::kCreateRevision;
    int64_t revision = 0;  // 0: the key must not exist
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
// Watches changes of these ranges from `from_revision` on.
std::string watch_body(std::span<const KeyRange> ranges, int64_t from_revision);

struct TxnAnswer {
  std::string cluster;  // that answers; empty: not reported
  int64_t revision = 0;
  bool succeeded = false;
  std::vector<KeyValue> found;  // by all reads, in their order
};
StatusOr<TxnAnswer> parse_txn(std::string_view json);

struct Lease {
  int64_t id = 0;
  std::chrono::seconds ttl{0};  // 0: there is no lease of this id
};
StatusOr<Lease> parse_grant(std::string_view json);
StatusOr<Lease> parse_keep_alive(std::string_view json);

struct WatchEvent {
  bool deleted = false;
  KeyValue kv;  // deleted: its key and mod_revision
};
struct WatchMessage {
  int64_t revision = 0;
  bool canceled = false;  // by etcd: the revision is compacted, or the member lost its leader
  std::vector<WatchEvent> events;
};
StatusOr<WatchMessage> parse_watch(std::string_view json);

// Returns the message of an answer that is not 200; "" if it has none.
std::string error_text(std::string_view json);

// Splits a stream into messages, one a line, for any split of its bytes.
class Lines {
 public:
  explicit Lines(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}
  // kResourceExhausted: a line exceeds the limit; the stream cannot be continued.
  Status feed(std::string_view piece);
  // Returns the next complete line that is not empty, valid until the next call; false: none yet.
  bool next(std::string_view& line);

 private:
  size_t line_bytes_max_;
  std::string buffer_;
  size_t read_ = 0;     // bytes of the buffer consumed
  size_t scanned_ = 0;  // bytes searched for the end of a line
};

}  // namespace troupe::etcd
