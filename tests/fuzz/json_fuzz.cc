// JSON that parse_json accepts is written and read back as the same value, and nothing it writes needs
// escaping again.

#include <cstdlib>

#include "common/json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = troupe::parse_json(text);
  if (!value.ok()) return 0;
  if (!troupe::is_valid_utf8(text)) std::abort();
  const std::string written = troupe::to_json(*value);
  const auto again = troupe::parse_json(written);
  if (!again.ok() || !(*again == *value) || troupe::to_json(*again) != written) std::abort();
  std::string literal;
  troupe::append_json_string(literal, text);
  const auto unescaped = troupe::parse_json(literal);
  if (!unescaped.ok() || std::string_view(unescaped->as_string()) != text) std::abort();
  return 0;
}
