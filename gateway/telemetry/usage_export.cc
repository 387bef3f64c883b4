#include "gateway/telemetry/usage_export.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/settings/schema.h"
#include "gateway/access/secret.h"

namespace troupe {

namespace {

int64_t unix_ms_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

// FILE.20261128T120000.123Z: sorted by name they are sorted by time.
std::string moved_path(const std::string& path) {
  const int64_t now = unix_ms_now();
  const auto seconds = static_cast<std::time_t>(now / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32], millis[8];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%S", &utc);
  std::snprintf(millis, sizeof millis, ".%03d", static_cast<int>(now % 1000));
  return absl::StrCat(path, ".", text, millis, "Z");
}

// When the file is moved away and when it is brought to the disk; used by the writer's thread.
class Rotation {
 public:
  explicit Rotation(const UsageOptions& options) : options_(options) {}

  void after_write(AppendLog& file, bool last) {
    const TimePoint now = std::chrono::steady_clock::now();
    const uint64_t size = file.size();
    if (size == 0) begun_ = now;
    const bool is_large = options_.rotate_bytes > 0 && size >= options_.rotate_bytes;
    const bool is_old = options_.rotate.count() > 0 && size > 0 && now >= begun_ + options_.rotate;
    const bool moves = (is_large || is_old) && now >= move_after_;
    const bool is_due = options_.fsync.count() > 0 && now >= synced_ + options_.fsync;
    if ((moves || last || is_due) && size != synced_size_) {
      file.sync();
      synced_ = now;
      synced_size_ = size;
    }
    if (!moves) return;
    constexpr auto kRetry = std::chrono::seconds(10);  // where the folder takes no other file, say
    if (file.move_to(moved_path(options_.file))) {
      begun_ = now;
    } else {
      move_after_ = now + kRetry;
    }
  }

 private:
  const UsageOptions options_;
  TimePoint begun_ = std::chrono::steady_clock::now(), synced_{}, move_after_{};
  uint64_t synced_size_ = 0;
};

Counter& tokens(Metrics& metrics, std::string kind) {
  return metrics.counter(
      "troupe_gateway_usage_tokens_total",
      "Tokens of the requests in the export of usage: prompts, cached ones among them, answers, "
      "thoughts among them.",
      {{"kind", std::move(kind)}});
}

Counter& dropped(Metrics& metrics, std::string reason) {
  return metrics.counter("troupe_gateway_usage_dropped_total",
                         "Requests that are missing in usage.file, by why.", {{"reason", std::move(reason)}});
}

}  // namespace

void describe(SettingsSchema& schema, UsageOptions& options) {
  schema.add("usage.file", &options.file,
             "a line of JSON for every request to a model: who, which, how many tokens; empty: none");
  schema.add("usage.totals", &options.totals, "sums by key, end user and model, for GET /admin/usage");
  schema.add("usage.hash_users", &options.hash_users, "end users by a hash of their names instead");
  schema
      .add("usage.rotate_bytes", &options.rotate_bytes,
           "the file is moved to FILE.TIME from this size on; 0: never")
      .range(0, 1e15)
      .unit("bytes");
  schema.add("usage.rotate_secs", &options.rotate, "or when it is so old; 0: never")
      .range(0, 31'622'400)
      .unit("seconds");
  schema
      .add("usage.fsync_ms", &options.fsync,
           "its lines are on the disk after this long; 0: when it is moved, and at the end")
      .range(0, 3.6e6)
      .unit("ms");
}

StatusOr<std::unique_ptr<UsageExport>> UsageExport::open(const UsageOptions& options, const Parts& parts) {
  std::unique_ptr<UsageExport> made(new UsageExport(options, parts));
  if (options.file.empty()) return made;
  TROUPE_ASSIGN_OR_RETURN(const int fd, AppendLog::open("usage.file", options.file));
  QueuedLog::Parts lines{
      "usage",
      parts.clock,
      parts.log,
      parts.metrics.counter("troupe_gateway_usage_lines_total", "Lines written to usage.file."),
      dropped(parts.metrics, "write_failed"),
      dropped(parts.metrics, "queue_full"),
      {}};
  lines.after_write = [rotation = std::make_shared<Rotation>(options)](AppendLog& file, bool last) {
    rotation->after_write(file, last);
  };
  made->lines_ = std::make_unique<QueuedLog>(fd, options.file, std::move(lines));
  return made;
}

UsageExport::UsageExport(const UsageOptions& options, const Parts& parts)
    : options_(options),
      user_salt_(parts.user_salt),
      requests_(parts.metrics.counter("troupe_gateway_usage_requests_total",
                                      "Requests to a model that are in the export of usage.")),
      prompt_(tokens(parts.metrics, "prompt")),
      cached_(tokens(parts.metrics, "cached")),
      completion_(tokens(parts.metrics, "completion")),
      reasoning_(tokens(parts.metrics, "reasoning")) {}

void UsageExport::add(UsageRecord record) {
  constexpr size_t kHexBytes = 32;
  std::string hashed;
  if (options_.hash_users && !record.end_user.empty()) {
    hashed = keyed_hash(user_salt_, record.end_user).substr(0, kHexBytes);
    record.end_user = hashed;
  }
  record.unix_ms = unix_ms_now();
  requests_.Increment();
  prompt_.Increment(static_cast<double>(record.tokens.prompt));
  cached_.Increment(static_cast<double>(record.tokens.cached));
  completion_.Increment(static_cast<double>(record.tokens.completion));
  reasoning_.Increment(static_cast<double>(record.tokens.reasoning));
  if (options_.totals) totals_.add(record);
  if (lines_ != nullptr) lines_->add(usage_line(record));
}

std::string UsageExport::totals_json(UsageBy by, size_t rows_max) {
  return options_.totals ? totals_.json(by, rows_max, unix_ms_now()) : std::string();
}

}  // namespace troupe
