// tokenizer.model from anywhere: refused or loaded; what loads, encodes and decodes without a fault. The
// first byte says what stands beside it, and whether its first line is a tokenizer_config.json. Nothing here
// may reach the library's asserts, which end the process.

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/json/json.h"
#include "worker/text/tokenizer/detokenizer.h"
#include "worker/text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  troupe::bj::object config;
  if ((data[0] & 1) != 0) config["bos_token"] = "<s>";
  if ((data[0] & 2) != 0) config["legacy"] = false;
  std::string_view model(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t line = model.find('\n');
  if ((data[0] & 4) != 0 && line != std::string_view::npos) {
    const auto parsed = troupe::parse_json(model.substr(0, line));
    if (!parsed.ok() || !parsed->is_object()) return 0;
    config = parsed->get_object();
    model.remove_prefix(line + 1);
  }
  auto tokenizer = troupe::Tokenizer::from_sentencepiece(model, config, "tokenizer.model");
  if (!tokenizer.ok()) return 0;
  std::string readable(model.substr(0, 2000));
  for (char& c : readable) c = static_cast<char>(c & 0x7F);
  for (std::string_view text :
       {std::string_view("Hello  \xEF\xBC\xA1 \xE5\xAE\x8B<s> e\xCC\x81 <|im_start|>"),
        std::string_view(readable)}) {
    auto ids = (*tokenizer)->encode(text, true);
    if (!ids.ok()) continue;
    std::string whole = (*tokenizer)->decode(*ids, true);
    if (!troupe::is_valid_utf8(whole)) __builtin_trap();
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
