#pragma once

// The settings beside a tokenizer.model: the special tokens and options of tokenizer_config.json, and the ids
// of added_tokens.json. A bare tokenizer.model has neither: special strings are then plain text, and nothing
// is added around a text.

#include <optional>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "worker/text/tokenizer/added_tokens.h"

namespace troupe {

struct SpmConfig {
  // Tokens searched in the text before SentencePiece sees it. A token without an id in any file (id < 0) is a
  // piece of the model.
  std::vector<AddedToken> added;
  // Added around a text by encode(add_special).
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  // Transformers' two treatments of the text between two special tokens. Legacy: each stretch is a separate
  // text with the model's leading space. Otherwise only the beginning of the text gets one.
  bool legacy = true;
  bool add_prefix_space = true;

  static StatusOr<SpmConfig> read(const std::string& model_dir);
  // Reads tokenizer_config.json's fields.
  static StatusOr<SpmConfig> load(const bj::object& config, std::string_view file_name);

 private:
  Status load_added_decoder(const JsonItem& item);
  Status load_named(const JsonItem& item);
  Status load_surroundings(const JsonItem& item);
  Status load_added_ids(const JsonItem& item);
};

}  // namespace troupe
