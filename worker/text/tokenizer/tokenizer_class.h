#pragma once

// Transformers' tokenizer classes: the tokens that one has where no file names them. A class that is not in
// the table has none.

#include <array>
#include <string_view>

namespace troupe {

// Their names, in the order in which a tokenizer object lists them.
inline constexpr std::array<std::string_view, 7> kTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct TokenizerClass {
  std::string_view names;                                   // of the classes, each between spaces
  std::array<std::string_view, kTokenNames.size()> tokens;  // by kTokenNames; empty: none
  // How its tokenizer.model treats the text between special tokens, unless tokenizer_config.json's "legacy"
  // says.
  bool is_legacy = true;
};

// Null for a class without tokens of its own. `name`: with or without its "Fast".
const TokenizerClass* find_tokenizer_class(std::string_view name);

// Returns the name of the class that a directory's tokenizer has. `config_class`: as its files name it, or
// empty; `model_type`: config.json's; `is_byte_level`: so says its tokenizer.json.
std::string_view tokenizer_class_of(std::string_view config_class, std::string_view model_type,
                                    bool is_byte_level);

}  // namespace troupe
