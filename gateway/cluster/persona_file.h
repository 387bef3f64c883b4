#pragma once

// Published personas of a gateway without a store (persona_store.h), in a file of its own: a line for each,
// as it is kept in etcd (persona/record.h). Written anew at each change by a thread beside the event loop;
// who publishes has an answer once the disk has it (replaced_file.h). All calls on the io_context's thread.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/task_group.h"
#include "gateway/cluster/persona_keeper.h"

namespace troupe {

class PersonaFile final : public PersonaKeeper {
 public:
  struct Parts {
    Executor executor;
    PersonaRegistry& registry;
    const Logger& log;
  };
  PersonaFile(std::string path, const Parts& parts);
  ~PersonaFile() override;
  PersonaFile(const PersonaFile&) = delete;
  PersonaFile& operator=(const PersonaFile&) = delete;

  // Whether load() would take the file, or could make one; nothing is made.
  static Status check(const std::string& path);
  // A path that leads to nothing is a gateway's first start. The error names the file and the line: nothing
  // is overwritten that is not understood.
  Status load();
  Task<Status> keep(Persona persona) override;

 private:
  using Key = PersonaRegistry::Key;
  Task<Status> write();
  void write_texts();

  const std::string path_;
  const Parts parts_;
  std::map<Key, std::string> lines_;  // as they are in the file, or will be
  std::set<Key> under_way_;           // being written
  uint64_t asked_ = 0;                // texts that were handed over
  Mutex mutex_;
  CondVar changed_;
  std::optional<std::string> next_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_number_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last text that was tried
  Status done_ ABSL_GUARDED_BY(mutex_);               // what became of it
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;  // last: it uses the members above
};

}  // namespace troupe
