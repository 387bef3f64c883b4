#pragma once

// An escape sequence of a Python string, behind its backslash, byte by byte.

#include <cstdint>
#include <string>

namespace troupe {

class PythonEscape {
 public:
  // Takes a byte. True: the sequence is over, and `text` has what it stands for.
  bool push(char byte, std::string& text);

 private:
  bool push_digit(char byte, std::string& text);

  int digits_left_ = 0;
  uint32_t code_ = 0;
};

}  // namespace troupe
