#pragma once

// Filters what a worker of ours sends beside a stream's text (x-troupe-ids): the ids of its tokens, the
// generator's seed, heartbeats, and at last the usage, whether the client asks for it or not. All of it is
// removed from the passing bytes and kept, so that another worker can continue where this one stops:
//
// clang-format off
//   data: {"id":"chatcmpl-…",…,"choices":[…],"troupe":{"ids":[8,15],"seed":42}}   →   data: {…,"choices":[…]}
//   : hb                                                                          →   nothing
//   …,"troupe":{"ids":[2],"prompt_tokens":30,"completion_tokens":9,"cached_tokens":16}}   →   …}
// clang-format on
//
// The member is the last of its chunk, compact. A chunk without it, from a worker of another kind, passes
// unaltered, and the stream cannot be resumed. Pure; one per request, its workers one after the other.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/route/key/token_estimate.h"

namespace troupe {

class ResumeTap {
 public:
  static constexpr size_t kIdsMax = size_t{1} << 18;  // a longer answer cannot be resumed

  // `one_choice`: several parallel choices cannot be resumed.
  explicit ResumeTap(bool one_choice) : lost_(!one_choice) {}

  // `events`: whole ones as the worker sent them, up to their blank lines; on return as the client gets them.
  void cut(std::string& events);

  // This worker has sent a heartbeat or ids: it keeps sending them, or it hangs.
  bool heartbeats() const { return heartbeats_; }
  bool done() const { return done_; }  // [DONE] has come
  // Another worker can continue exactly where the client's text ends.
  bool resumable() const { return identity_ && seed_ && !lost_; }
  // Ids to continue after; 0 once the stream cannot be resumed.
  size_t ids_delivered() const { return ids_.size(); }
  // Tokens that the client got, from all workers.
  size_t tokens_delivered() const { return tokens_delivered_; }
  // This worker's counts of the whole answer: one that resumed includes the tokens before it, and counts the
  // prompt without them. None before its last chunk.
  const std::optional<route::AnswerCounts>& counts() const { return counts_; }

  // The next worker's events come from here on. `resumes`: it was asked to continue; else no part of the
  // answer has been passed on yet.
  void next_worker(bool resumes);
  // The worker was asked to resume, but its stream is another one: none of it may be passed on.
  bool diverged() const { return diverged_; }

  // The client's request as sent to the next worker. REQUIRES: resumable(); `body` is one JSON object with
  // members.
  std::string resume_body(std::string_view body) const;

 private:
  struct Identity {
    std::string id;
    int64_t created_s = 0;
  };
  bool passes(std::string_view data, bool has_ids);
  bool take_member(std::string_view member);
  static bool read_counts(std::string_view& member, std::optional<route::AnswerCounts>& counts);
  static std::optional<Identity> identity_of(std::string_view data);
  void lose();

  std::vector<int32_t> ids_;
  size_t tokens_delivered_ = 0;
  std::optional<uint64_t> seed_;
  std::optional<Identity> identity_;
  bool lost_ = false;      // a chunk came that no worker can continue after
  bool finished_ = false;  // the client has the finish reason
  bool done_ = false;
  // State of this worker.
  bool heartbeats_ = false;
  bool first_ = true;  // no event yet
  bool diverged_ = false;
  bool resumes_ = false;  // another worker began this stream
  std::optional<route::AnswerCounts> counts_;
};

// The HTTP status that an error event stands for, by its type and code; 0: not one of our workers' errors.
int status_of_error_event(std::string_view event);

}  // namespace troupe
