#pragma once

// A model directory's word about its tokens beside their vocabulary, as the tokenizer object of Transformers
// 5 takes it: tokenizer_config.json, special_tokens_map.json, added_tokens.json, and the class that
// tokenizer_config.json or config.json names, which has tokens of its own.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/tokenizer/added_tokens.h"

namespace troupe {

struct NamedToken {
  std::string name;  // "bos_token", or a model's own: "image_token"
  AddedToken token;  // its id is -1; its content may be empty: a token that never occurs
};

// The files' contents; null where a file is missing.
struct TokenizerFiles {
  bj::value config;          // tokenizer_config.json
  bj::value special_tokens;  // special_tokens_map.json
  bj::value added_tokens;    // added_tokens.json
  bj::value model;           // config.json
};

struct TokenizerConfig {
  std::vector<NamedToken> named;  // the class's where the files say nothing
  std::vector<AddedToken> extra;  // special tokens without a name; ids are -1
  // Else a tokenizer.model's own control and user-defined pieces are the extra ones.
  bool lists_extra = false;
  // From added_tokens_decoder, or else from added_tokens.json; by id, which may be another in a vocabulary
  // that has the token.
  std::vector<AddedToken> listed;
  std::vector<std::string> without_text;  // places of added tokens that are none, as they have no text
  bool lists_flags = false;     // they are added_tokens_decoder's: their flags count, whatever others say
  bool splits_special = false;  // special tokens in a text are text
  // Settings for a tokenizer.model, which does not have them itself.
  std::optional<bool> adds_bos, adds_eos, is_legacy, adds_prefix_space;
  bool is_generic = true;   // no class with tokens of its own
  bool is_llama = false;    // Llama's class
  bool has_config = false;  // there is a tokenizer_config.json

  // Files may be missing. `tokenizer_json`: its content, or null. Errors name file and key.
  static StatusOr<TokenizerConfig> read(const std::string& model_dir, const bj::value& tokenizer_json);
  static StatusOr<TokenizerConfig> load(const TokenizerFiles& files, const bj::value& tokenizer_json,
                                        const std::string& model_dir = "");

  // The text of a named token; nothing if it has no name or no text.
  std::optional<std::string> named_text(std::string_view name) const;
  // The variables that a chat template sees: named tokens' texts, and additional_special_tokens, a list.
  bj::object variables() const;
  // Adds to `tokens`, those of the vocabulary's own file, the ones of the directory that it lacks, and gives
  // those that it has the flags of added_tokens_decoder. `id_of`: a token's id in the vocabulary, or nothing;
  // new ones get the next from `ids_end` on.
  template <class IdOf>
  void add_to(std::vector<AddedToken>& tokens, const IdOf& id_of, int32_t ids_end) const {
    std::vector<AddedToken> more = additions(tokens);
    for (const AddedToken& token : tokens) ids_end = std::max(ids_end, token.id + 1);
    for (AddedToken& token : more) {
      const std::optional<int32_t> id = id_of(token.content);
      token.id = id ? *id : ids_end++;
      tokens.push_back(std::move(token));
    }
  }

 private:
  std::vector<AddedToken> additions(std::vector<AddedToken>& tokens) const;
};

}  // namespace troupe
