#pragma once

// Readers of single calls, one for each way to write them. A reader gets the bytes behind the mark that opens
// a call (or the bracket that does), one by one. Until it begins a call its bytes are kept by tool_text.h,
// and are text again if it refuses. A call that the answer's end cuts keeps cut arguments, so that a client
// refuses half of them.
//
//   json     {"name": NAME, "arguments"|"parameters": {…}}
//   mistral  NAME[ARGS]{…}, or a list of the above
//   named    NAME, a mark, the arguments' JSON, a mark
//   xml      parameters between tags, with values as bare text
//   python   [NAME(key=value, …), …]
//   gemma    call:NAME{key:value, …}

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/answer/call_writer.h"

namespace troupe {

enum class CallStep : uint8_t {
  kMore,
  kRefused,    // this is no call. REQUIRES: none has begun
  kEnded,      // with this byte
  kEndBefore,  // the byte is no more of it
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual CallStep push(char byte, CallWriter& calls) = 0;
};

// Limit of a value that is held until it is whole, and of a call's name. Longer values become strings.
inline constexpr size_t kHeldValueBytesMax = size_t{64} << 10;
inline constexpr size_t kCallNameBytesMax = 256;

// `known_only`: a call of a tool that the request does not have is none.
std::unique_ptr<CallReader> json_call_reader(bool known_only);
std::unique_ptr<CallReader> mistral_call_reader();
std::unique_ptr<CallReader> python_call_reader();
std::unique_ptr<CallReader> gemma_call_reader();

struct NamedMarks {
  std::string_view separator;          // between name and arguments
  std::vector<std::string_view> ends;  // behind the arguments
  bool has_kind = false;               // DeepSeek V3's: KIND, the separator, NAME, ```json, the arguments
  bool first_word = false;             // of the text before the separator is the name
  bool id_is_name = false;             // Kimi's: functions.NAME:INDEX is the call's id, too
};
std::unique_ptr<CallReader> named_call_reader(NamedMarks marks);

struct XmlMarks {
  std::vector<std::string_view> name_ends;  // of which the last one is the call's end without parameters
  std::string_view key_opens, key_ends;
  std::string_view value_opens;  // empty: the value begins behind the key
  std::vector<std::string_view> value_ends;
  std::string_view call_ends;
};
std::unique_ptr<CallReader> xml_call_reader(XmlMarks marks);

inline bool is_call_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace troupe
