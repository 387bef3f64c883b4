#pragma once

// Parameters of a request's tools: forms that write values as bare text need to know what a text is.
// Immutable, so safe to use from many threads.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

// A set of JSON's types has a bit for each.
inline constexpr uint8_t kNoType = 0, kNullType = 1, kBooleanType = 2, kNumberType = 4, kStringType = 8,
                         kArrayType = 16, kObjectType = 32, kAnyType = 63;

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // `tools_json`: of a request. What is no function is left out.
  static StatusOr<ToolSchemas> parse(std::string_view tools_json);

  bool has(std::string_view function) const { return functions_.find(function) != functions_.end(); }
  // Types that the parameter's schema allows; where the tool declares no such parameter those that it allows
  // all others by a schema of theirs (additionalProperties), else a string.
  uint8_t types_of(std::string_view function, std::string_view parameter) const;
  // Declared parameters, by name, that may be anything but strings: texts of these are read as JSON.
  std::vector<std::string> read_as_json(std::string_view function) const;
  uint8_t types_of_others(std::string_view function) const;

 private:
  struct Function {
    std::map<std::string, uint8_t, std::less<>> parameters;
    uint8_t others = kNoType;
  };
  std::map<std::string, Function, std::less<>> functions_;
};

// The JSON of a value that came as bare text: of one of `types` if the text is one (also as Python writes
// true, false and null), else a string. REQUIRES: valid UTF-8.
std::string json_of_bare_value(std::string_view text, uint8_t types);

}  // namespace troupe
