#include "gateway/cluster/pin_file.h"

#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/net/timer.h"
#include "gateway/cluster/pin_record.h"
#include "gateway/cluster/replaced_file.h"

namespace troupe {
namespace {

constexpr std::string_view kHead = R"({"troupe":"pins","version":1})";
constexpr auto kWriteEvery = std::chrono::seconds(1);
// A byte of a text may take six in JSON; each record has more than its text.
constexpr size_t kFileOfText = 8;

int64_t unix_now_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// As a setting's fault; OK stays OK.
Status as_refused(const Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("pins.file: ", status.message()));
}

// Calls `take` with each line behind the first.
Status read_pins(const std::string& path, size_t text_bytes,
                 const std::function<Status(std::string_view record)>& take) {
  const auto broken = [&path](const Status& why, size_t line) {
    return absl::InvalidArgumentError(absl::StrCat("pins.file: ", path, ": line ", line, ": ", why.message(),
                                                   " (move it away to begin without its pins)"));
  };
  const auto read = read_regular_file(path, kPinRecordBytesMax + kFileOfText * text_bytes);
  if (!read.ok()) return as_refused(read.status());
  std::string_view rest = *read;
  for (size_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return broken(invalid_argument("is cut off"), line);
    const std::string_view record = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const Status taken = line > 1          ? take(record)
                         : record == kHead ? absl::OkStatus()
                                           : invalid_argument(absl::StrCat("must be ", to_absl(kHead)));
    if (!taken.ok()) return broken(taken, line);
  }
  return read->empty() ? broken(invalid_argument("is empty"), 1) : absl::OkStatus();
}

}  // namespace

PinFile::PinFile(std::string path, const Parts& parts)
    : path_(std::move(path)), parts_(parts), writer_([this] { write_texts(); }) {}

PinFile::~PinFile() {
  write_changes();
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  writer_.join();
}

Status PinFile::check(const std::string& path, size_t text_bytes) {
  if (!path_exists(path)) return as_refused(check_creatable(path));
  return read_pins(path, text_bytes,
                   [](std::string_view record) { return parse_pin_record(record).status(); });
}

Status PinFile::load() {
  if (path_exists(path_)) {
    TROUPE_RETURN_IF_ERROR(read_pins(path_, parts_.pins.registry().options().text_bytes,
                                     [this](std::string_view record) { return take(record); }));
    written_ = parts_.pins.registry().changes();
  } else {
    TROUPE_RETURN_IF_ERROR(as_refused(replace_file(path_, absl::StrCat(to_absl(kHead), "\n"))));
  }
  loaded_ = true;
  return absl::OkStatus();
}

Status PinFile::take(std::string_view record) {
  TROUPE_ASSIGN_OR_RETURN(PinRecord kept, parse_pin_record(record));
  route::Pin& pin = kept.pin;
  const int64_t left_s = kept.until_unix_s - unix_now_s();
  if (pin.expires && left_s <= 0) return absl::OkStatus();
  pin.id = route::Pin::id_of(pin.prefix, pin.owner);
  pin.shared = false;
  pin.until = parts_.clock.now() + std::chrono::seconds(pin.expires ? left_s : 0);
  parts_.pins.adopt(std::move(pin));
  return absl::OkStatus();
}

void PinFile::start(TaskGroup& group) {
  group.spawn(run());
}

Task<void> PinFile::run() {
  Timer timer(parts_.executor);
  while (true) {
    timer.expires_after(kWriteEvery);
    co_await timer.async_wait(use_task);
    write_changes();
  }
}

void PinFile::write_changes() {
  const uint64_t changes = parts_.pins.registry().changes();
  {
    const MutexLock lock(mutex_);
    if (!loaded_ || (changes == written_ && !failed_)) return;
  }
  std::string now = text();
  {
    const MutexLock lock(mutex_);
    next_ = std::move(now);
    failed_ = false;
  }
  written_ = changes;
  changed_.notify_one();
}

std::string PinFile::text() const {
  std::string text = absl::StrCat(to_absl(kHead), "\n");
  const TimePoint now = parts_.clock.now();
  for (const route::Pin* pin : parts_.pins.registry().all()) {
    if (pin->imported || (pin->expires && pin->until <= now)) continue;
    PinRecord record;
    record.pin = *pin;
    record.pin.claims = parts_.pins.claims_of(*pin);
    if (pin->expires)
      record.until_unix_s = unix_now_s() + std::chrono::ceil<std::chrono::seconds>(pin->until - now).count();
    const std::string line = pin_record_json(record);
    if (line.size() <= kPinRecordBytesMax) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// The writer's thread.
void PinFile::write_texts() {
  bool logged = false;
  while (true) {
    std::optional<std::string> text;
    {
      const MutexLock lock(mutex_);
      while (!next_ && !closing_) changed_.wait(mutex_);
      text = std::exchange(next_, std::nullopt);
    }
    if (!text) return;
    const Status written = replace_file(path_, *text);
    if (!written.ok() && !logged)
      parts_.log.error("pins_not_written", {{"file", path_}, {"why", to_std(written.message())}});
    logged = !written.ok();
    const MutexLock lock(mutex_);
    failed_ = !written.ok();
  }
}

}  // namespace troupe
