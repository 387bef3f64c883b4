#pragma once

// GET /v1/prefixes, GET and DELETE /v1/prefixes/{id}, and the record of POST /v1/prefixes: the prefixes that
// this worker was asked to compute ahead of use. PrefixRegistry keeps the books, Generator computes.
//
// All calls on the executor's thread.

#include <memory>
#include <string>
#include <string_view>

#include "common/api/prefix.h"
#include "common/net/timer.h"
#include "worker/engine/engine.h"
#include "worker/http/http_call.h"
#include "worker/http/pin_owners.h"
#include "worker/input/prefix_registry.h"

namespace troupe {

class Prefixes {
 public:
  // `engine` outlives this.
  Prefixes(Executor executor, const PrefixRegistry::Options& options, std::string model, Engine& engine);

  // A prefix being computed; abandoned unless finish() is called.
  class Making {
   public:
    Making(Prefixes& prefixes, const PrefixRegistry::Ask& ask, std::string_view owner)
        : prefixes_(prefixes), ask_(ask), owner_(owner) {}
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
    // Returns the answer's body.
    std::string finish(int64_t cached_tokens);

   private:
    Prefixes& prefixes_;
    const PrefixRegistry::Ask ask_;
    const std::string owner_;
    bool finished_ = false;
  };
  // 409 when the budget of pins does not suffice, 429 when too many are being computed. `owner`: whose it
  // is (pin_owners.h); may be empty.
  ApiResult<std::unique_ptr<Making>> begin(const PrefixRegistry::Ask& ask, std::string_view owner = {});

  Task<void> list(HttpCall& call);
  Task<void> one(HttpCall& call);  // GET and DELETE
  // Stops the expiry timer.
  void close();

 private:
  PrefixState state_of(const PrefixRegistry::Entry& entry) const;
  void remove_for(std::string_view owner, const PrefixRegistry::Entry& entry);
  // Forgets what has expired, and pins that the engine gave up.
  void expire();
  void wait_for_expiry();

  PrefixRegistry book_;
  PinOwners owners_;
  const std::string model_;
  Engine& engine_;
  const TimePoint started_at_;  // the same moment twice
  const int64_t started_s_;     // Unix
  Timer timer_;
  bool closed_ = false;
};

}  // namespace troupe
