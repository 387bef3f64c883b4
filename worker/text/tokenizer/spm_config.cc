#include "worker/text/tokenizer/spm_config.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe {
namespace {

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

// Old conversions of Llama write "unk_token": "" for an unnamed token.
bool is_unnamed(const bj::value& value) {
  return value.is_string() && value.get_string().empty();
}

// Reads "</s>" or {"content": "</s>", "lstrip": …}: files use both spellings.
StatusOr<AddedToken> named_token(const bj::value& value, std::string where) {
  AddedToken token;
  if (value.is_string()) {
    token.content = std::string(value.get_string());
    if (token.content.empty()) return invalid_argument(where + ": empty");
  } else {
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, std::move(where)));
    TROUPE_ASSIGN_OR_RETURN(token, load_added_token(item, -1));
  }
  token.id = -1;
  token.special = true;
  return token;
}

// Returns the content of one of kNamedTokens, or nothing if the file does not name it.
StatusOr<std::optional<std::string>> named_content(const JsonItem& item, std::string_view key) {
  const bj::value* value = find_field(item, key);
  if (value == nullptr || is_unnamed(*value)) return std::optional<std::string>();
  TROUPE_ASSIGN_OR_RETURN(AddedToken token, named_token(*value, field_path(item, key)));
  return std::optional<std::string>(std::move(token.content));
}

}  // namespace

Status SpmConfig::load_added_decoder(const JsonItem& item) {
  const bj::value* field = find_field(item, "added_tokens_decoder");
  TROUPE_ASSIGN_OR_RETURN(JsonItem tokens, json_object(*field, field_path(item, "added_tokens_decoder")));
  for (const auto& entry : *tokens.object) {
    std::string where = field_path(tokens, std::string_view(entry.key().data(), entry.key().size()));
    int32_t id = -1;
    bool is_id = absl::SimpleAtoi(absl::string_view(entry.key().data(), entry.key().size()), &id);
    if (!is_id || id < 0 || id >= kTokenIdsMax) {
      return invalid_argument(absl::StrCat(where, ": expected a token id from 0 to ", kTokenIdsMax - 1));
    }
    TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(entry.value(), where));
    TROUPE_ASSIGN_OR_RETURN(AddedToken token, load_added_token(fields, id));
    added.push_back(std::move(token));
  }
  return {};
}

Status SpmConfig::load_named(const JsonItem& item) {
  auto add = [&](AddedToken token) {
    bool is_new = std::none_of(added.begin(), added.end(),
                               [&](const AddedToken& other) { return other.content == token.content; });
    if (is_new) added.push_back(std::move(token));
  };
  for (const char* name : kNamedTokens) {
    const bj::value* value = find_field(item, name);
    if (value == nullptr || is_unnamed(*value)) continue;
    TROUPE_ASSIGN_OR_RETURN(AddedToken token, named_token(*value, field_path(item, name)));
    add(std::move(token));
  }
  if (find_field(item, "additional_special_tokens") == nullptr) return {};
  TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(item, "additional_special_tokens"));
  for (size_t i = 0; i < list->size(); ++i) {
    std::string where = absl::StrCat(field_path(item, "additional_special_tokens"), "[", i, "]");
    TROUPE_ASSIGN_OR_RETURN(AddedToken token, named_token((*list)[i], std::move(where)));
    add(std::move(token));
  }
  return {};
}

Status SpmConfig::load_surroundings(const JsonItem& item) {
  std::string tokenizer_class;
  if (find_field(item, "tokenizer_class") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(tokenizer_class, string_field(item, "tokenizer_class"));
  }
  // Without a setting, Llama's class puts <s> before a text; the other classes that read a
  // tokenizer.model add nothing.
  bool is_llama = tokenizer_class == "LlamaTokenizer" || tokenizer_class == "LlamaTokenizerFast" ||
                  tokenizer_class == "CodeLlamaTokenizer" || tokenizer_class == "CodeLlamaTokenizerFast";
  TROUPE_ASSIGN_OR_RETURN(bool add_bos, bool_field(item, "add_bos_token", is_llama));
  TROUPE_ASSIGN_OR_RETURN(bool add_eos, bool_field(item, "add_eos_token", false));
  TROUPE_ASSIGN_OR_RETURN(std::optional<std::string> bos_content, named_content(item, "bos_token"));
  TROUPE_ASSIGN_OR_RETURN(std::optional<std::string> eos_content, named_content(item, "eos_token"));
  if (add_bos) bos = bos_content.value_or("<s>");
  if (add_eos) eos = eos_content.value_or("</s>");
  TROUPE_ASSIGN_OR_RETURN(legacy, bool_field(item, "legacy", true));
  TROUPE_ASSIGN_OR_RETURN(add_prefix_space, bool_field(item, "add_prefix_space", true));
  return {};
}

// Reads {"<pad>": 32000}, the form of older files.
Status SpmConfig::load_added_ids(const JsonItem& item) {
  for (const auto& entry : *item.object) {
    std::string content(entry.key().data(), entry.key().size());
    std::string where = field_path(item, content);
    if (content.empty()) return invalid_argument(where + ": a token without a name");
    TROUPE_ASSIGN_OR_RETURN(int32_t id, token_id(entry.value(), where));
    auto known = std::find_if(added.begin(), added.end(),
                              [&](const AddedToken& token) { return token.content == content; });
    if (known == added.end()) {
      added.emplace_back();
      known = added.end() - 1;
      known->content = content;
      known->id = -1;
    }
    if (known->id >= 0 && known->id != id) {
      return invalid_argument(
          absl::StrCat(where, ": id ", id, ", but added_tokens_decoder says ", known->id));
    }
    known->id = id;
  }
  return {};
}

StatusOr<SpmConfig> SpmConfig::load(const bj::object& fields, std::string_view file_name) {
  SpmConfig config;
  JsonItem item{&fields, ""};
  Status status =
      find_field(item, "added_tokens_decoder") != nullptr ? config.load_added_decoder(item) : Status();
  if (status.ok()) status = config.load_named(item);
  if (status.ok()) status = config.load_surroundings(item);
  if (!status.ok()) return annotate(status, file_name);
  return config;
}

StatusOr<SpmConfig> SpmConfig::read(const std::string& model_dir) {
  SpmConfig config;
  std::string path = model_dir + "/tokenizer_config.json";
  if (path_exists(path)) {
    TROUPE_ASSIGN_OR_RETURN(bj::value root, read_json_file(path));
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(root, path));
    TROUPE_ASSIGN_OR_RETURN(config, SpmConfig::load(*item.object, path));
  }
  path = model_dir + "/added_tokens.json";
  if (path_exists(path)) {
    TROUPE_ASSIGN_OR_RETURN(bj::value root, read_json_file(path));
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(root, path));
    TROUPE_RETURN_IF_ERROR(config.load_added_ids(item));
  }
  return config;
}

}  // namespace troupe
