#include "worker/text/special_tokens.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "worker/text/json_fields.h"

namespace troupe {
namespace {

constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr const char* kList = "additional_special_tokens";
constexpr const char* kOwn = "extra_special_tokens";

// A token's text: the value itself, or its "content".
StatusOr<std::string> text_of(const bj::value& value, const std::string& where) {
  if (value.is_string()) return std::string(value.get_string().data(), value.get_string().size());
  if (!value.is_object())
    return invalid_argument(where + ": expected a string or an object with \"content\"");
  TROUPE_ASSIGN_OR_RETURN(JsonItem token, json_object(value, where));
  return string_field(token, "content");
}

Status read_list(const JsonItem& file, bj::object& tokens) {
  const bj::value* field = find_field(file, kList);
  if (field == nullptr || !field->is_array()) return {};
  bj::array list;
  for (const bj::value& entry : field->get_array()) {
    TROUPE_ASSIGN_OR_RETURN(std::string text,
                            text_of(entry, absl::StrCat(field_path(file, kList), "[", list.size(), "]")));
    list.emplace_back(text);
  }
  tokens[kList] = std::move(list);
  return {};
}

Status read_own(const JsonItem& file, bj::object& tokens) {
  const bj::value* field = find_field(file, kOwn);
  if (field == nullptr || !field->is_object()) return {};
  for (const auto& entry : field->get_object()) {
    const std::string name(entry.key().data(), entry.key().size());
    TROUPE_ASSIGN_OR_RETURN(std::string text,
                            text_of(entry.value(), absl::StrCat(field_path(file, kOwn), ".", name)));
    tokens[name] = text;
  }
  return {};
}

StatusOr<bj::object> read_tokens(const JsonItem& file) {
  bj::object tokens;
  TROUPE_RETURN_IF_ERROR(read_own(file, tokens));
  TROUPE_RETURN_IF_ERROR(read_list(file, tokens));
  for (const char* name : kNames) {
    const bj::value* field = find_field(file, name);
    if (field == nullptr) continue;
    TROUPE_ASSIGN_OR_RETURN(std::string text, text_of(*field, field_path(file, name)));
    tokens[name] = text;
  }
  return tokens;
}

struct File {
  bj::object tokens;
  bool has_decoder = false;
};

StatusOr<File> read_file(const std::string& path) {
  File result;
  if (!path_exists(path)) return result;
  TROUPE_ASSIGN_OR_RETURN(bj::value root, read_json_file(path));
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(root, path));
  TROUPE_ASSIGN_OR_RETURN(result.tokens, read_tokens(item));
  result.has_decoder = find_field(item, "added_tokens_decoder") != nullptr;
  return result;
}

}  // namespace

StatusOr<bj::object> load_special_tokens(const std::string& model_dir) {
  TROUPE_ASSIGN_OR_RETURN(File config, read_file(model_dir + "/tokenizer_config.json"));
  TROUPE_ASSIGN_OR_RETURN(File map, read_file(model_dir + "/special_tokens_map.json"));
  for (const auto& [name, value] : map.tokens) {
    if (!config.has_decoder || !config.tokens.contains(name)) config.tokens[name] = value;
  }
  return std::move(config.tokens);
}

}  // namespace troupe
