// A template from anywhere: parses or is refused with a line; what parses, renders or is refused within its
// limits, to valid UTF-8.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/json/json.h"
#include "worker/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  troupe::ChatTemplate::Limits limits;
  limits.steps_max = 20'000;
  limits.output_bytes_max = 64u << 10;
  limits.source_bytes_max = 16u << 10;
  std::string_view source(reinterpret_cast<const char*>(data), size);
  auto parsed = troupe::ChatTemplate::parse(source, limits);
  if (!parsed.ok()) return 0;
  troupe::bj::array messages{
      troupe::bj::object{{"role", "system"}, {"content", "Du bist \xC3\xA4"}},
      troupe::bj::object{{"role", "user"}, {"content", " a <b> \n"}, {"n", 1.5}},
  };
  troupe::bj::object context{{"messages", messages},
                             {"add_generation_prompt", true},
                             {"tools", nullptr},
                             {"x", 7},
                             {"now", "2024-12-11 20:00:00"}};
  auto text = (*parsed)->render(context);
  if (text.ok() && (!troupe::is_valid_utf8(*text) || text->size() > limits.output_bytes_max))
    __builtin_trap();
  return 0;
}
