#pragma once

// What stands beside a tokenizer.model: the special tokens and habits of tokenizer_config.json, and the ids
// of added_tokens.json. A bare tokenizer.model has neither: then special strings are text like any other, and
// nothing is put around a text.

#include <optional>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "worker/text/tokenizer/added_tokens.h"

namespace troupe {

struct SpmConfig {
  // Tokens that are looked for in the text before SentencePiece sees it. Those whose id no file says (id < 0)
  // are pieces of the model.
  std::vector<AddedToken> added;
  // What encode(add_special) puts around a text.
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  // transformers' two ways with the text between two special tokens. Legacy: each stretch is a text of its
  // own and gets the model's leading space. Otherwise only the text's beginning gets one.
  bool legacy = true;
  bool add_prefix_space = true;

  static StatusOr<SpmConfig> read(const std::string& model_dir);
  // From tokenizer_config.json's fields.
  static StatusOr<SpmConfig> load(const bj::object& config, std::string_view file_name);

 private:
  Status load_added_decoder(const JsonItem& item);
  Status load_named(const JsonItem& item);
  Status load_surroundings(const JsonItem& item);
  Status load_added_ids(const JsonItem& item);
};

}  // namespace troupe
