#include "gateway/proxy/token_forms.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/api/tokenize.h"
#include "common/json/json.h"
#include "gateway/proxy/json_patch.h"

namespace troupe {
namespace {

// The ids of a list: of numbers, or of objects with an `id`; nullopt: it is no such list.
std::optional<std::vector<int32_t>> ids_of(const bj::value& value) {
  const bj::array* list = value.if_array();
  if (list == nullptr) return std::nullopt;
  std::vector<int32_t> ids;
  ids.reserve(list->size());
  for (const bj::value& item : *list) {
    const bj::object* fields = item.if_object();
    const bj::value* id = fields == nullptr ? &item : fields->if_contains("id");
    if (id == nullptr || !id->is_int64() || id->get_int64() < 0 || id->get_int64() > INT32_MAX)
      return std::nullopt;
    ids.push_back(static_cast<int32_t>(id->get_int64()));
  }
  return ids;
}

}  // namespace

TokenForms::TokenForms(std::string_view path, std::string_view body) : decodes_(path == "/detokenize") {
  body_ = std::string(body);
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return;
  const bj::value* tokens = fields->if_contains("tokens");
  asks_nothing_ = decodes_ && tokens != nullptr && tokens->is_array() && tokens->get_array().empty();
  const auto given = [fields](const char* name) {
    const bj::value* member = fields->if_contains(name);
    return member == nullptr || member->is_null() ? nullptr : member;
  };
  const bj::value* prompt = given("prompt");
  const bool is_llama_cpps = prompt == nullptr && given("messages") == nullptr;
  if (is_llama_cpps) prompt = given("content");
  if (decodes_ || prompt == nullptr || !prompt->is_string()) return;
  asks_nothing_ = prompt->get_string().empty();
  const bj::value* special = fields->if_contains(is_llama_cpps ? "add_special" : "add_special_tokens");
  const bool adds = special == nullptr || !special->is_bool() ? !is_llama_cpps : special->get_bool();
  const std::string text = to_json(*prompt), flag = adds ? "true" : "false";
  if (is_llama_cpps) {
    std::vector<JsonPatch> members = {{"prompt", text}, {"inputs", text}, {"add_special_tokens", flag}};
    const bj::value* model = given("model");  // SillyTavern's, where it knows none
    if (model != nullptr && model->is_string() && model->get_string() == "undefined")
      members.push_back({.name = "model", .takes_away = true});
    body_ = with_members(body, members);
    return;
  }
  const JsonPatch members[] = {{"content", text}, {"inputs", text}, {"add_special", flag}};
  body_ = with_members(body, members);
}

std::optional<std::string> TokenForms::tokens_in(std::string_view body, int64_t max_model_len) const {
  const auto value = parse_json(body);
  if (!value.ok()) return std::nullopt;
  const bj::object* fields = value->if_object();
  const bj::value* list = fields == nullptr ? &*value : fields->if_contains("tokens");
  auto ids = list == nullptr ? std::nullopt : ids_of(*list);
  if (!ids || (ids->empty() && !asks_nothing_)) return std::nullopt;
  if (fields != nullptr && fields->contains("count")) return std::string(body);
  TokenizeAnswer answer;
  answer.tokens = *std::move(ids);
  answer.max_model_len = max_model_len;
  return tokenize_json(answer);
}

std::optional<std::string> TokenForms::answer(std::string_view body, int64_t max_model_len) const {
  if (!decodes_) return tokens_in(body, max_model_len);
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return std::nullopt;
  for (const char* name : {"prompt", "content"}) {
    const bj::value* text = fields->if_contains(name);
    if (text != nullptr && text->is_string()) return detokenize_json(std::string_view(text->get_string()));
  }
  return std::nullopt;
}

ApiError TokenForms::unknown_form(std::string_view path, std::string_view model) {
  ApiError error = ApiError::bad_field(
      "", absl::StrCat("no worker that serves '", to_absl(model), "' answers this POST ", to_absl(path),
                       " in a form that is known here (vLLM's, llama.cpp's for texts, TGI's for texts)"));
  error.http_status = 501;
  error.code = "not_supported";
  return error;
}

}  // namespace troupe
