#pragma once

// The export of usage: a line of JSON for every request to a model (access/usage_record.h), in a file that is
// moved away when it is large or old, for billing to pick up; and the sums of it for /admin/usage. A thread
// writes (queued_log.h): lines that the disk does not take are dropped and counted, no request waits, and the
// sums and metrics have them all the same.
//
// On the event loop's thread.

#include <chrono>
#include <memory>
#include <string>

#include "common/core/metrics.h"
#include "common/core/status.h"
#include "gateway/access/usage_totals.h"
#include "gateway/telemetry/queued_log.h"

namespace troupe {

class SettingsSchema;

struct UsageOptions {
  std::string file;     // empty: no lines
  bool totals = false;  // kept for /admin/usage
  bool hash_users = true;
  uint64_t rotate_bytes = uint64_t{256} << 20;  // 0: whatever its size
  std::chrono::seconds rotate{86'400};          // 0: whatever its age
  std::chrono::milliseconds fsync{1000};        // 0: only when a file is moved away, and at the end
  bool enabled() const { return totals || !file.empty(); }
};
// Describes usage.*. `options` must outlive the schema.
void describe(SettingsSchema& schema, UsageOptions& options);

class UsageExport {
 public:
  struct Parts {
    Metrics& metrics;
    const Clock& clock;
    const Logger& log;
    std::string user_salt;  // of hashed end users
  };
  // Errors name the file.
  static StatusOr<std::unique_ptr<UsageExport>> open(const UsageOptions& options, const Parts& parts);

  // The record's end user is replaced by its hash first, where that is asked for.
  void add(UsageRecord record);
  // UsageTotals::json(). Empty: they are not kept.
  std::string totals_json(UsageBy by, size_t rows_max);
  void reopen() {
    if (lines_ != nullptr) lines_->reopen();
  }

 private:
  UsageExport(const UsageOptions& options, const Parts& parts);

  const UsageOptions options_;
  const std::string user_salt_;
  UsageTotals totals_;
  Counter& requests_;
  Counter& prompt_;
  Counter& cached_;
  Counter& completion_;
  Counter& reasoning_;
  std::unique_ptr<QueuedLog> lines_;  // null: none
};

}  // namespace troupe
