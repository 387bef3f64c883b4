#include "worker/text/tokenizer/post_processor.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"
#include "worker/text/json_fields.h"

namespace troupe {
namespace {

constexpr std::string_view kSupported =
    "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing";

// Returns the ids of special token `name` in a TemplateProcessing's "special_tokens".
StatusOr<std::vector<int32_t>> special_ids(const JsonItem& processor, const std::string& name) {
  const bj::value* all = find_field(processor, "special_tokens");
  std::string where = field_path(processor, "special_tokens");
  if (all == nullptr) return invalid_argument(where + ": missing");
  TROUPE_ASSIGN_OR_RETURN(JsonItem map, json_object(*all, where));
  const bj::value* entry = find_field(map, name);
  where = absl::StrCat(where, "[\"", name, "\"]");
  if (entry == nullptr) return invalid_argument(where + ": missing, but the template names it");
  TROUPE_ASSIGN_OR_RETURN(JsonItem token, json_object(*entry, where));
  TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(token, "ids"));
  std::vector<int32_t> ids;
  for (const bj::value& value : *list) {
    TROUPE_ASSIGN_OR_RETURN(int32_t id, token_id(value, where + ".ids"));
    ids.push_back(id);
  }
  return ids;
}

// Reads ["</s>", 2]: a token and its id, in the form of BertProcessing and RobertaProcessing.
StatusOr<int32_t> token_pair_id(const JsonItem& processor, std::string_view key) {
  TROUPE_ASSIGN_OR_RETURN(const bj::array* pair, array_field(processor, key));
  std::string where = field_path(processor, key);
  if (pair->size() != 2) return invalid_argument(where + ": expected [token, id]");
  return token_id((*pair)[1], where + "[1]");
}

}  // namespace

StatusOr<PostProcessor> PostProcessor::load(const bj::value& value, const std::string& where) {
  PostProcessor processor;
  if (!value.is_null()) TROUPE_RETURN_IF_ERROR(processor.load_nested(value, where));
  return processor;
}

Status PostProcessor::load_nested(const bj::value& value, const std::string& where) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  TROUPE_ASSIGN_OR_RETURN(std::string type, component_type(item));
  if (type == "ByteLevel") return {};  // changes only offsets, which are unused here
  if (type == "TemplateProcessing") return load_template(value, where);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    TROUPE_ASSIGN_OR_RETURN(int32_t before, token_pair_id(item, "cls"));
    TROUPE_ASSIGN_OR_RETURN(int32_t after, token_pair_id(item, "sep"));
    before_.insert(before_.begin(), before);
    after_.push_back(after);
    return {};
  }
  if (type != "Sequence") return unsupported_component(item, type, kSupported);
  TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(item, "processors"));
  for (size_t i = 0; i < list->size(); ++i) {
    TROUPE_RETURN_IF_ERROR(load_nested((*list)[i], absl::StrCat(where, ".processors[", i, "]")));
  }
  return {};
}

Status PostProcessor::load_template(const bj::value& value, const std::string& where) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  TROUPE_ASSIGN_OR_RETURN(const bj::array* pieces, array_field(item, "single"));
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  bool seen_text = false;
  for (size_t i = 0; i < pieces->size(); ++i) {
    std::string path = absl::StrCat(where, ".single[", i, "]");
    TROUPE_ASSIGN_OR_RETURN(JsonItem piece, json_object((*pieces)[i], path));
    if (const bj::value* text = find_field(piece, "Sequence"); text != nullptr) {
      TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(*text, path + ".Sequence"));
      TROUPE_ASSIGN_OR_RETURN(std::string id, string_field(fields, "id"));
      if (id != "A" || seen_text) return invalid_argument(path + ": expected the sequence \"A\" once");
      seen_text = true;
      continue;
    }
    const bj::value* special = find_field(piece, "SpecialToken");
    if (special == nullptr)
      return invalid_argument(path + ": expected {\"SpecialToken\": …} or {\"Sequence\": …}");
    TROUPE_ASSIGN_OR_RETURN(JsonItem fields, json_object(*special, path + ".SpecialToken"));
    TROUPE_ASSIGN_OR_RETURN(std::string name, string_field(fields, "id"));
    TROUPE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, special_ids(item, name));
    std::vector<int32_t>& side = seen_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_text) return invalid_argument(where + ".single: the sequence \"A\" is missing");
  // A later processor of a sequence wraps the output of the earlier ones.
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
  return {};
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

}  // namespace troupe
