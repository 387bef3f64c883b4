#include "worker/text/answer/json_builder.h"

#include <utility>

#include "common/json/json.h"

namespace troupe {

void JsonBuilder::begin_value(CallWriter& calls) {
  if (in_object() && !has_key_) key("", calls);
  if (!brackets_.empty() && !in_object() && !std::exchange(is_first_, false)) calls.arguments(", ");
  has_key_ = false;
}

void JsonBuilder::end_value() {
  is_first_ = false;
}

bool JsonBuilder::open(char bracket, CallWriter& calls) {
  if (brackets_.size() >= kDepthMax) return false;
  begin_value(calls);
  calls.arguments(bracket);
  brackets_ += bracket;
  is_first_ = true;
  return true;
}

void JsonBuilder::close(CallWriter& calls) {
  if (has_key_) value("null", calls);
  calls.arguments(in_object() ? '}' : ']');
  brackets_.pop_back();
  end_value();
}

void JsonBuilder::key(std::string_view name, CallWriter& calls) {
  if (has_key_) value("null", calls);
  std::string text = std::exchange(is_first_, false) ? "" : ", ";
  append_json_string(text, name);
  calls.arguments(text + ": ");
  has_key_ = true;
}

void JsonBuilder::value(std::string_view json, CallWriter& calls) {
  begin_value(calls);
  calls.arguments(json);
  end_value();
}

void JsonBuilder::open_string(CallWriter& calls) {
  begin_value(calls);
  calls.arguments('"');
  in_string_ = true;
}

void JsonBuilder::string_bytes(std::string_view bytes, CallWriter& calls) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    if (byte == '"' || byte == '\\') {
      text += '\\';
      text += byte;
    } else if (byte == '\n') {
      text += "\\n";
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      text += "\\u00";
      text += kDigits[static_cast<unsigned char>(byte) >> 4];
      text += kDigits[byte & 15];
    } else {
      text += byte;
    }
  }
  calls.arguments(text);
}

void JsonBuilder::close_string(CallWriter& calls) {
  calls.arguments('"');
  in_string_ = false;
  end_value();
}

void JsonBuilder::finish(CallWriter& calls) {
  if (in_string_) close_string(calls);
  while (depth() > 0) close(calls);
}

}  // namespace troupe
