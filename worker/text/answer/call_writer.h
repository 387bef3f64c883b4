#pragma once

// Collects the calls of one choice, as a reader of their form (call_reader.h) finds them. Not thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/core/block_hash.h"
#include "worker/text/answer/answer_delta.h"
#include "worker/text/answer/tool_schemas.h"

namespace troupe {

class CallWriter {
 public:
  struct Options {
    const ToolSchemas* schemas = nullptr;  // of the request's tools; outlives this
    // The ids of calls follow from it, so that a stream that goes on elsewhere has the same.
    std::string answer_id;
    int32_t choice = 0;
    bool short_ids = false;  // nine letters and digits, as Mistral's templates want
    bool parallel = true;    // false: calls after the first are left out
  };
  explicit CallWriter(Options options);

  // The piece that calls and text go to from here on.
  void write_to(AnswerDelta& delta) { delta_ = &delta; }

  // Begins a call; an empty id: one is made. REQUIRES: none is open.
  void begin(std::string_view name, std::string_view id = {});
  // Appends to the open call's arguments.
  void arguments(std::string_view text);
  void arguments(char byte) { arguments(std::string_view(&byte, 1)); }
  // Ends the open call, if one is. Without arguments it has {}.
  void end();
  // Text among the calls that is part of none.
  void text(std::string_view text) { delta_->content += text; }
  bool open() const { return open_; }
  // Calls begun so far.
  int32_t count() const { return count_; }
  std::string_view name() const { return name_; }  // of the call begun last
  const ToolSchemas& schemas() const { return *options_.schemas; }

 private:
  std::string made_id() const;
  ToolCall& piece();

  const Options options_;
  AnswerDelta* delta_ = nullptr;
  int32_t count_ = 0;
  bool open_ = false, has_arguments_ = false, is_left_out_ = false;
  std::string name_;
};

}  // namespace troupe
