// tokenizer.json from anywhere: loads or is refused; what loads, encodes and decodes without a fault.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "worker/text/tokenizer/detokenizer.h"
#include "worker/text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view json(reinterpret_cast<const char*>(data), size);
  auto tokenizer = troupe::Tokenizer::from_json(json, "tokenizer.json");
  if (!tokenizer.ok()) return 0;
  // The file itself is a text that holds all of its tokens.
  for (std::string_view text :
       {std::string_view("Hello 'll  12\n\n é宋<s> <|im_end|>"), json.substr(0, 2000)}) {
    auto ids = (*tokenizer)->encode(text, true);
    if (!ids.ok()) continue;
    std::string whole = (*tokenizer)->decode(*ids, true);
    troupe::Detokenizer detokenizer(tokenizer->get(), {"never to be found in any text \xC2\xA0"});
    std::string streamed;
    for (int32_t id : *ids) streamed += detokenizer.push(id);
    streamed += detokenizer.finish();
    // A character that lacks its last bytes is left out of an answer.
    while (whole.size() > streamed.size() && whole.ends_with("\xEF\xBF\xBD")) whole.resize(whole.size() - 3);
    if (!detokenizer.stopped() && streamed != whole) __builtin_trap();
  }
  return 0;
}
