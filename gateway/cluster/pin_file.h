#pragma once

// The pins of a gateway without a store (pin_store.h), in a file of its own, so that it has their requests
// when it begins again: a worker alone knows which prefixes it holds pinned, and not how to compute them
// (route/placement/pin_importer.h). A line for each, as it is kept in etcd (pin_record.h).
//
// The file is written anew within a second of a change, by a thread beside the event loop, and once more when
// the gateway stops: to another one beside it, which then takes its place, so that a reader always finds a
// whole one. Only its owner may read it. What a gateway that is killed has not written yet, it takes up from
// its workers. A pin whose record is longer than kPinRecordBytesMax is not in it, and one that the workers
// alone know is not either.
//
// All calls on the io_context's thread.

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/core/time.h"
#include "common/net/task_group.h"
#include "gateway/cluster/pin_reconciler.h"

namespace troupe {

class PinFile {
 public:
  struct Parts {
    Executor executor;
    PinReconciler& pins;
    const Clock& clock;
    const Logger& log;
  };
  PinFile(std::string path, const Parts& parts);
  // Writes what changed last.
  ~PinFile();
  PinFile(const PinFile&) = delete;
  PinFile& operator=(const PinFile&) = delete;

  // Whether load() would take the file, or could make one; nothing is made. `text_bytes`: pins.text_bytes.
  static Status check(const std::string& path, size_t text_bytes);
  // Reads the pins, as far as pins.text_bytes has room for them. A path that leads to nothing is a gateway's
  // first start. The error names the file and the line: nothing is overwritten that is not understood.
  // Called before start().
  Status load();
  // One endless task in `group`: cancel the group to stop it.
  void start(TaskGroup& group);

 private:
  Task<void> run();
  Status take(std::string_view record);
  void write_changes();
  std::string text() const;
  void write_texts();

  const std::string path_;
  const Parts parts_;
  bool loaded_ = false;   // the file may be written
  uint64_t written_ = 0;  // PinRegistry::changes(), of the last text
  Mutex mutex_;
  CondVar changed_;
  std::optional<std::string> next_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // to write the last text
  std::thread writer_;                           // last: it uses the members above
};

}  // namespace troupe
