#pragma once

// Finds the end of a JSON value in a text that comes byte by byte, without checking more of it than that.

#include <cstdint>

namespace troupe {

class JsonValueScanner {
 public:
  enum class Step : uint8_t {
    kMore,       // the byte is the value's
    kLast,       // and it is its last
    kEndBefore,  // the value ended before it, or no value of JSON goes on with it
  };
  Step push(char byte);

 private:
  Step push_in_string(char byte);

  enum class State : uint8_t { kStart, kNested, kString, kEscape, kWord };
  State state_ = State::kStart;
  int64_t depth_ = 0;
};

}  // namespace troupe
