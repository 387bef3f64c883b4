#pragma once

// Writes a call's arguments as JSON, piece by piece, for forms whose own text is none. Whatever the calls,
// what has been written is JSON once finish() has been called: missing ends and values are put in.

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/text/answer/call_writer.h"

namespace troupe {

class JsonBuilder {
 public:
  static constexpr size_t kDepthMax = 64;

  // Opens an object, or a list. False: there are kDepthMax of them already, and nothing was written.
  bool open(char bracket, CallWriter& calls);
  // Closes what was opened last. REQUIRES: depth() > 0
  void close(CallWriter& calls);
  size_t depth() const { return brackets_.size(); }
  bool in_object() const { return !brackets_.empty() && brackets_.back() == '{'; }
  bool wants_key() const { return in_object() && !has_key_; }

  void key(std::string_view name, CallWriter& calls);
  // A whole value's JSON.
  void value(std::string_view json, CallWriter& calls);
  // A string, which comes in pieces of valid UTF-8 or bytes of it.
  void open_string(CallWriter& calls);
  void string_bytes(std::string_view bytes, CallWriter& calls);
  void close_string(CallWriter& calls);

  void finish(CallWriter& calls);

 private:
  // Before a value: a comma in a list, null's key in an object.
  void begin_value(CallWriter& calls);
  void end_value();

  std::string brackets_;
  bool is_first_ = true;  // of the innermost
  bool has_key_ = false;  // whose value has not begun
  bool in_string_ = false;
};

}  // namespace troupe
