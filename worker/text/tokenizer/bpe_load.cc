// Reads tokenizer.json's BPE model, checked item by item: an invalid file is refused here with the entry's
// name, so that encoding can rely on its tables.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/bpe.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr char32_t kLowCharactersEnd = 0x180;

Status unsupported_option(const JsonItem& item, std::string_view key, std::string_view supported) {
  return absl::UnimplementedError(
      absl::StrCat(field_path(item, key), ": only ", to_absl(supported), " is supported"));
}

Status refuse_options(const JsonItem& item) {
  const bj::value* dropout = find_field(item, "dropout");
  if (dropout != nullptr && !(dropout->is_double() && dropout->get_double() == 0.0)) {
    return unsupported_option(item, "dropout", "null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const bj::value* value = find_field(item, key);
    if (value != nullptr && !(value->is_string() && value->get_string().empty())) {
      return unsupported_option(item, key, "null or \"\"");
    }
  }
  return {};
}

}  // namespace

StatusOr<Bpe> Bpe::load(const bj::value& value, const std::string& where) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  // Files written before tokenizers 0.9 omit the type.
  if (find_field(item, "type") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(std::string type, component_type(item));
    if (type != "BPE") return unsupported_component(item, type, "BPE");
  }
  TROUPE_RETURN_IF_ERROR(refuse_options(item));
  Bpe bpe;
  TROUPE_ASSIGN_OR_RETURN(bpe.ignore_merges_, bool_field(item, "ignore_merges", false));
  TROUPE_ASSIGN_OR_RETURN(bpe.fuse_unknown_, bool_field(item, "fuse_unk", false));
  const bj::value* vocab = find_field(item, "vocab");
  if (vocab == nullptr) return invalid_argument(where + ".vocab: missing");
  TROUPE_RETURN_IF_ERROR(bpe.load_vocab(*vocab, where + ".vocab"));
  TROUPE_ASSIGN_OR_RETURN(bool byte_fallback, bool_field(item, "byte_fallback", false));
  if (byte_fallback) bpe.index_bytes();
  const bj::value* merges = find_field(item, "merges");
  if (merges == nullptr) return invalid_argument(where + ".merges: missing");
  TROUPE_RETURN_IF_ERROR(bpe.load_merges(*merges, where + ".merges"));
  if (find_field(item, "unk_token") != nullptr) {
    TROUPE_ASSIGN_OR_RETURN(std::string unknown, string_field(item, "unk_token"));
    std::optional<int32_t> id = bpe.token_to_id(unknown);
    if (!id.has_value() && !unknown.empty()) {
      return invalid_argument(absl::StrCat(where, ".unk_token: \"", unknown, "\" is not in the vocabulary"));
    }
    bpe.unknown_id_ = id.value_or(-1);
  }
  return bpe;
}

Status Bpe::load_vocab(const bj::value& value, const std::string& where) {
  if (!value.is_object() || value.get_object().empty()) {
    return invalid_argument(where + ": expected an object of token: id, not empty");
  }
  const bj::object& object = value.get_object();
  vocab_.reserve(object.size());
  absl::flat_hash_map<int32_t, std::string_view> owners;
  owners.reserve(object.size());
  for (const auto& entry : object) {
    std::string_view token(entry.key().data(), entry.key().size());
    std::string item = absl::StrCat(where, "[\"", to_absl(token), "\"]");
    TROUPE_ASSIGN_OR_RETURN(int32_t id, token_id(entry.value(), item));
    auto [owner, is_new] = owners.emplace(id, token);
    if (!is_new) {
      return invalid_argument(
          absl::StrCat(item, ": id ", id, " is that of \"", to_absl(owner->second), "\" already"));
    }
    vocab_.emplace(token, id);
    ids_end_ = std::max(ids_end_, id + 1);
  }
  index_characters();
  return {};
}

void Bpe::index_characters() {
  low_character_ids_.assign(kLowCharactersEnd, -1);
  for (char32_t c = 0; c < kLowCharactersEnd; ++c) {
    std::string text;
    append_utf8(text, c);
    auto it = vocab_.find(text);
    if (it != vocab_.end()) low_character_ids_[c] = it->second;
  }
}

void Bpe::index_bytes() {
  byte_ids_.assign(256, -1);
  for (int byte = 0; byte < 256; ++byte) {
    std::string name = absl::StrFormat("<0x%02X>", byte);
    byte_ids_[static_cast<size_t>(byte)] = token_to_id(name).value_or(-1);
  }
}

Status Bpe::load_merges(const bj::value& value, const std::string& where) {
  if (!value.is_array()) return invalid_argument(where + ": expected an array");
  const bj::array& list = value.get_array();
  merges_.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    std::string item = absl::StrCat(where, "[", i, "]");
    const bj::value& entry = list[i];
    if (entry.is_array() && entry.get_array().size() == 2 && entry.get_array()[0].is_string() &&
        entry.get_array()[1].is_string()) {
      const bj::string& left = entry.get_array()[0].get_string();
      const bj::string& right = entry.get_array()[1].get_string();
      TROUPE_RETURN_IF_ERROR(add_merge({left.data(), left.size()}, {right.data(), right.size()}, item));
      continue;
    }
    std::string_view text;
    if (entry.is_string()) text = {entry.get_string().data(), entry.get_string().size()};
    size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return invalid_argument(item + ": expected \"left right\" or [\"left\", \"right\"]");
    }
    TROUPE_RETURN_IF_ERROR(add_merge(text.substr(0, space), text.substr(space + 1), item));
  }
  return {};
}

Status Bpe::add_merge(std::string_view left, std::string_view right, const std::string& where) {
  auto id_of = [&](std::string_view token, std::string_view role) -> StatusOr<int32_t> {
    std::optional<int32_t> id = token_to_id(token);
    if (id.has_value()) return *id;
    return invalid_argument(
        absl::StrCat(where, ": the ", to_absl(role), " \"", to_absl(token), "\" is not in the vocabulary"));
  };
  if (left.empty() || right.empty())
    return invalid_argument(where + ": a merge needs two tokens, neither empty");
  TROUPE_ASSIGN_OR_RETURN(int32_t left_id, id_of(left, "left part"));
  TROUPE_ASSIGN_OR_RETURN(int32_t right_id, id_of(right, "right part"));
  TROUPE_ASSIGN_OR_RETURN(int32_t new_id, id_of(absl::StrCat(to_absl(left), to_absl(right)), "result"));
  uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left_id)) << 32 | static_cast<uint32_t>(right_id);
  // A merge listed twice takes its last position, as in the original.
  merges_.insert_or_assign(key, Merge{merge_count_++, new_id});
  return {};
}

}  // namespace troupe
