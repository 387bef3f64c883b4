// The rules are those of Transformers 5; tests/fixtures/directories.json has what it makes of sixty
// directories that are at odds with themselves. One exception: a file that it would fail at (a token as a
// plain object in tokenizer_config.json, a byte order mark) is read where its meaning is plain.

#include "worker/text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/tokenizer_class.h"

namespace troupe {
namespace {

constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";
constexpr const char* kDecoder = "added_tokens_decoder";

std::string_view view(bj::string_view text) {
  return {text.data(), text.size()};
}

// A key of a file; its value may be null, which is another thing than a missing key.
struct Setting {
  const bj::value* value = nullptr;
  std::string where;
  bool is_mapped = false;  // special_tokens_map.json's: whatever it has is special

  bool has_value() const { return value != nullptr && !value->is_null(); }
  bool is_empty() const {
    if (!has_value()) return true;
    return (value->is_array() && value->get_array().empty()) ||
           (value->is_object() && value->get_object().empty());
  }
};

// Reads "</s>" or {"content": "</s>", "lstrip": …}: files use both spellings.
StatusOr<AddedToken> token_of(const Setting& setting) {
  AddedToken token;
  token.special = true;
  if (setting.value->is_string()) {
    token.content = view(setting.value->get_string());
  } else {
    if (!setting.value->is_object()) {
      return invalid_argument(absl::StrCat(setting.where, ": expected a string or an object with \"content\"",
                                           ", found ", std::string(json_kind(*setting.value))));
    }
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(*setting.value, setting.where));
    TROUPE_ASSIGN_OR_RETURN(token, load_added_token(item, -1));
    if (setting.is_mapped && find_field(item, "normalized") == nullptr) token.normalized = false;
    token.special |= setting.is_mapped;
  }
  token.id = -1;
  return token;
}

bool is_token_object(const bj::value& value) {
  if (!value.is_object()) return false;
  const bj::value* type = value.get_object().if_contains("__type");
  return type != nullptr && type->is_string() && type->get_string() == "AddedToken";
}

bool is_standard(std::string_view name) {
  return std::find(kTokenNames.begin(), kTokenNames.end(), name) != kTokenNames.end();
}

class ConfigReader {
 public:
  ConfigReader(JsonItem config, JsonItem map, TokenizerConfig& out)
      : config_(std::move(config)), map_(std::move(map)), out_(&out) {
    if (find_field(config_, kDecoder) != nullptr) map_ = {&kNothing, ""};
  }

  Status read(const TokenizerClass* own) {
    TROUPE_RETURN_IF_ERROR(read_named(own));
    TROUPE_RETURN_IF_ERROR(read_own(config_, false, [](const bj::value& v) { return is_token_object(v); }));
    TROUPE_RETURN_IF_ERROR(
        read_own(map_, true, [](const bj::value& v) { return v.is_string() || v.is_object(); }));
    TROUPE_RETURN_IF_ERROR(read_own(config_, false, [](const bj::value& v) { return v.is_string(); }));
    TROUPE_RETURN_IF_ERROR(read_extra());
    return read_decoder();
  }

 private:
  inline static const bj::object kNothing;

  static Setting setting_of(const JsonItem& file, std::string_view key, bool is_mapped) {
    return {file.object->if_contains(key), field_path(file, key), is_mapped};
  }

  void set(std::string_view name, AddedToken token) {
    const auto [place, is_new] = places_.emplace(name, out_->named.size());
    if (is_new) out_->named.push_back({std::string(name), {}});
    out_->named[place->second].token = std::move(token);
  }

  Status read_named(const TokenizerClass* own) {
    for (size_t i = 0; i < kTokenNames.size(); ++i) {
      Setting setting = setting_of(map_, kTokenNames[i], true);
      if (setting.value == nullptr) setting = setting_of(config_, kTokenNames[i], false);
      if (setting.has_value()) {
        TROUPE_ASSIGN_OR_RETURN(AddedToken token, token_of(setting));
        set(kTokenNames[i], std::move(token));
      } else if (setting.value == nullptr && own != nullptr && !own->tokens[i].empty()) {
        AddedToken token;
        token.id = -1;
        token.content = own->tokens[i];
        token.special = true;
        set(kTokenNames[i], std::move(token));
      }
    }
    return {};
  }

  // Keys as "image_token", of one form of token. A value that is no token is another thing's
  // ("add_bos_token").
  template <class HasForm>
  Status read_own(const JsonItem& file, bool is_mapped, const HasForm& has_form) {
    for (const auto& entry : *file.object) {
      const std::string_view name = view(entry.key());
      if (!name.ends_with("_token") || is_standard(name) || !has_form(entry.value())) continue;
      TROUPE_ASSIGN_OR_RETURN(AddedToken token, token_of(setting_of(file, name, is_mapped)));
      set(name, std::move(token));
    }
    return {};
  }

  // A list of tokens, or an object of named ones.
  Status read_extra() {
    Setting extra = setting_of(config_, kExtra, false);
    Setting additional = setting_of(config_, kAdditional, false);
    if (extra.is_empty() && additional.value != nullptr) std::swap(extra, additional);
    TROUPE_RETURN_IF_ERROR(add_extra(extra));
    TROUPE_RETURN_IF_ERROR(add_extra(setting_of(map_, kExtra, true)));
    const Setting mapped = setting_of(map_, kAdditional, true);
    if (out_->lists_extra || !mapped.has_value()) return {};
    TROUPE_RETURN_IF_ERROR(add_extra(mapped));
    out_->lists_extra = false;
    return {};
  }

  Status add_extra(const Setting& setting) {
    if (!setting.has_value()) return {};
    if (setting.value->is_object()) {
      for (const auto& entry : setting.value->get_object()) {
        const std::string name(view(entry.key()));
        TROUPE_ASSIGN_OR_RETURN(
            AddedToken token,
            token_of({&entry.value(), absl::StrCat(setting.where, ".", name), setting.is_mapped}));
        set(name, std::move(token));
      }
      return {};
    }
    if (!setting.value->is_array()) {
      return invalid_argument(absl::StrCat(setting.where,
                                           ": expected a list of tokens or an object of named ones",
                                           ", found ", std::string(json_kind(*setting.value))));
    }
    const bj::array& list = setting.value->get_array();
    for (size_t i = 0; i < list.size(); ++i) {
      TROUPE_ASSIGN_OR_RETURN(AddedToken token, token_of({&list[i], absl::StrCat(setting.where, "[", i, "]"),
                                                          setting.is_mapped}));
      if (extra_texts_.insert(token.content).second) out_->extra.push_back(std::move(token));
    }
    out_->lists_extra = true;
    return {};
  }

  Status read_decoder() {
    const bj::value* field = find_field(config_, kDecoder);
    if (field == nullptr) return {};
    out_->lists_flags = true;
    TROUPE_ASSIGN_OR_RETURN(JsonItem tokens, json_object(*field, field_path(config_, kDecoder)));
    for (const auto& entry : *tokens.object) {
      const std::string where = field_path(tokens, view(entry.key()));
      int32_t id = -1;
      const bool is_id = absl::SimpleAtoi(to_absl(view(entry.key())), &id);
      if (!is_id || id < 0 || id >= kTokenIdsMax) {
        return invalid_argument(absl::StrCat(where, ": expected a token id from 0 to ", kTokenIdsMax - 1));
      }
      TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(entry.value(), where));
      TROUPE_ASSIGN_OR_RETURN(AddedToken token, load_added_token(fields, id));
      if (token.content.empty()) {
        out_->without_text.push_back(where);
      } else {
        out_->listed.push_back(std::move(token));
      }
    }
    return {};
  }

  JsonItem config_, map_;
  TokenizerConfig* out_;
  absl::flat_hash_map<std::string, size_t> places_;  // by name, in out_->named
  absl::flat_hash_set<std::string> extra_texts_;
};

// Reads {"<pad>": 32000}, the form of older directories.
Status read_added_ids(const JsonItem& file, TokenizerConfig& config) {
  absl::flat_hash_set<std::string_view> special;
  for (const NamedToken& named : config.named) special.insert(named.token.content);
  for (const AddedToken& token : config.extra) special.insert(token.content);
  for (const auto& entry : *file.object) {
    AddedToken token;
    token.content = view(entry.key());
    const std::string where = field_path(file, token.content);
    TROUPE_ASSIGN_OR_RETURN(token.id, token_id(entry.value(), where));
    if (token.content.empty()) {
      config.without_text.push_back(where);
      continue;
    }
    token.special = special.contains(token.content);
    token.normalized = !token.special;
    config.listed.push_back(std::move(token));
  }
  return {};
}

StatusOr<std::optional<bool>> flag_of(const JsonItem& file, std::string_view key) {
  if (find_field(file, key) == nullptr) return std::optional<bool>();
  TROUPE_ASSIGN_OR_RETURN(bool value, bool_field(file, key, false));
  return std::optional<bool>(value);
}

Status read_flags(const JsonItem& file, TokenizerConfig& config) {
  TROUPE_ASSIGN_OR_RETURN(config.adds_bos, flag_of(file, "add_bos_token"));
  TROUPE_ASSIGN_OR_RETURN(config.adds_eos, flag_of(file, "add_eos_token"));
  TROUPE_ASSIGN_OR_RETURN(config.is_legacy, flag_of(file, "legacy"));
  TROUPE_ASSIGN_OR_RETURN(config.adds_prefix_space, flag_of(file, "add_prefix_space"));
  TROUPE_ASSIGN_OR_RETURN(config.splits_special, bool_field(file, "split_special_tokens", false));
  return {};
}

StatusOr<std::string> text_field(const JsonItem& file, std::string_view key) {
  return find_field(file, key) == nullptr ? StatusOr<std::string>("") : string_field(file, key);
}

bool is_llama_class(std::string_view class_name) {
  return class_name.starts_with("LlamaTokenizer") || class_name.starts_with("CodeLlamaTokenizer");
}

bool is_byte_level(const bj::value& tokenizer_json) {
  if (!tokenizer_json.is_object()) return false;
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    const bj::value* value = tokenizer_json.get_object().if_contains(part);
    if (value != nullptr && to_json(*value).find("\"ByteLevel\"") != std::string::npos) return true;
  }
  return false;
}

// The token that tokenizer.json pads with is the pad_token where the other files have no such key.
Status read_padding(const JsonItem& config, const JsonItem& map, const bj::value& tokenizer_json,
                    TokenizerConfig& result) {
  if (config.object->contains("pad_token") || map.object->contains("pad_token")) return {};
  if (!tokenizer_json.is_object()) return {};
  const bj::value* padding = find_field({&tokenizer_json.get_object(), ""}, "padding");
  if (padding == nullptr) return {};
  TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(*padding, "tokenizer.json: padding"));
  if (find_field(fields, "pad_token") == nullptr) return {};
  AddedToken token;
  TROUPE_ASSIGN_OR_RETURN(token.content, string_field(fields, "pad_token"));
  token.id = -1;
  token.special = true;
  result.named.push_back({"pad_token", std::move(token)});
  return {};
}

// An empty object where the file is missing.
StatusOr<JsonItem> file_item(const bj::value& content, const std::string& path) {
  static const bj::object kMissing;
  if (content.is_null()) return JsonItem{&kMissing, path + ": "};
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(content, path));
  item.where += ": ";
  return item;
}

StatusOr<bj::value> read_if_there(const std::string& path) {
  if (!path_exists(path)) return bj::value();
  TROUPE_ASSIGN_OR_RETURN(bj::value content, read_json_file(path));
  if (content.is_null()) return invalid_argument(path + ": expected an object, found null");
  return content;
}

}  // namespace

StatusOr<TokenizerConfig> TokenizerConfig::load(const TokenizerFiles& files, const bj::value& tokenizer_json,
                                                const std::string& model_dir) {
  const std::string folder = model_dir.empty() ? "" : model_dir + "/";
  TROUPE_ASSIGN_OR_RETURN(JsonItem config, file_item(files.config, folder + "tokenizer_config.json"));
  TROUPE_ASSIGN_OR_RETURN(JsonItem map, file_item(files.special_tokens, folder + "special_tokens_map.json"));
  TROUPE_ASSIGN_OR_RETURN(JsonItem ids, file_item(files.added_tokens, folder + "added_tokens.json"));
  TROUPE_ASSIGN_OR_RETURN(JsonItem model, file_item(files.model, folder + "config.json"));
  TROUPE_ASSIGN_OR_RETURN(std::string class_name, text_field(config, "tokenizer_class"));
  if (class_name.empty()) {
    TROUPE_ASSIGN_OR_RETURN(class_name, text_field(model, "tokenizer_class"));
  }
  TROUPE_ASSIGN_OR_RETURN(std::string model_type, text_field(model, "model_type"));
  const std::string_view resolved = tokenizer_class_of(class_name, model_type, is_byte_level(tokenizer_json));
  const TokenizerClass* own = find_tokenizer_class(resolved);
  TokenizerConfig result;
  TROUPE_RETURN_IF_ERROR(ConfigReader(config, map, result).read(own));
  TROUPE_RETURN_IF_ERROR(read_flags(config, result));
  if (!result.lists_flags) TROUPE_RETURN_IF_ERROR(read_added_ids(ids, result));
  std::sort(result.listed.begin(), result.listed.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  if (own == nullptr) TROUPE_RETURN_IF_ERROR(read_padding(config, map, tokenizer_json, result));
  result.has_config = !files.config.is_null();
  result.is_generic = own == nullptr;
  result.is_llama = is_llama_class(resolved);
  // As in Transformers 4, whose directories do not say so: Llama's texts begin with <s>.
  if (is_llama_class(class_name) && !result.adds_bos) result.adds_bos = true;
  if (!result.is_legacy && own != nullptr) result.is_legacy = own->is_legacy;
  return result;
}

StatusOr<TokenizerConfig> TokenizerConfig::read(const std::string& model_dir,
                                                const bj::value& tokenizer_json) {
  TokenizerFiles files;
  TROUPE_ASSIGN_OR_RETURN(files.config, read_if_there(model_dir + "/tokenizer_config.json"));
  TROUPE_ASSIGN_OR_RETURN(files.special_tokens, read_if_there(model_dir + "/special_tokens_map.json"));
  TROUPE_ASSIGN_OR_RETURN(files.added_tokens, read_if_there(model_dir + "/added_tokens.json"));
  TROUPE_ASSIGN_OR_RETURN(files.model, read_if_there(model_dir + "/config.json"));
  return load(files, tokenizer_json, model_dir);
}

std::optional<std::string> TokenizerConfig::named_text(std::string_view name) const {
  for (const NamedToken& known : named) {
    if (known.name == name && !known.token.content.empty()) return known.token.content;
  }
  return std::nullopt;
}

bj::object TokenizerConfig::variables() const {
  bj::object result;
  for (const NamedToken& known : named) result[known.name] = known.token.content;
  bj::array list;
  for (const AddedToken& token : extra) list.emplace_back(token.content);
  if (!list.empty()) result[kAdditional] = std::move(list);
  return result;
}

std::vector<AddedToken> TokenizerConfig::additions(std::vector<AddedToken>& tokens) const {
  absl::flat_hash_map<std::string, AddedToken*> there;
  absl::flat_hash_set<int32_t> ids;
  for (AddedToken& token : tokens) {
    there.emplace(token.content, &token);
    ids.insert(token.id);
  }
  absl::flat_hash_set<std::string_view> names, added;
  for (const NamedToken& other : named) names.insert(other.token.content);
  std::vector<AddedToken> result;
  const auto add = [&](const AddedToken& token, bool is_special) {
    if (token.content.empty() || there.contains(token.content) || !added.insert(token.content).second) return;
    result.push_back(token);
    result.back().special |= is_special;
  };
  for (const AddedToken& token : listed) {
    if (!lists_flags && ids.contains(token.id)) continue;  // the vocabulary's own file knows better
    add(token, names.contains(token.content));
    const auto known = there.find(token.content);
    if (known == there.end() || !lists_flags) continue;
    const AddedToken before = *known->second;
    *known->second = token;
    known->second->id = before.id;
    known->second->special |= before.special;
  }
  for (const NamedToken& other : named) add(other.token, true);
  for (const AddedToken& token : extra) add(token, false);
  return result;
}

}  // namespace troupe
