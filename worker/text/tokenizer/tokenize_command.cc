#include <boost/json/array.hpp>
#include <istream>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "worker/text/json_fields.h"
#include "worker/text/subcommands.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {
namespace {

constexpr const char* kUsage =
    "usage: troupe-worker tokenize --model DIR [--decode]\n"
    "  stdin: one JSON string a line; stdout: one JSON array of token ids a line.\n"
    "  --decode: the other way. DIR needs only tokenizer.json, or tokenizer.model and what stands\n"
    "  beside it (tokenizer_config.json, added_tokens.json).\n";

StatusOr<std::string> ids_line(const Tokenizer& tokenizer, const std::string& line) {
  TROUPE_ASSIGN_OR_RETURN(bj::value value, parse_json(line));
  if (!value.is_string()) return invalid_argument("expected a JSON string");
  const bj::string& text = value.get_string();
  TROUPE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.encode({text.data(), text.size()}, true));
  std::string array = "[";
  for (int32_t id : ids) absl::StrAppend(&array, array.size() > 1 ? "," : "", id);
  return array + "]";
}

StatusOr<std::string> text_line(const Tokenizer& tokenizer, const std::string& line) {
  TROUPE_ASSIGN_OR_RETURN(bj::value value, parse_json(line));
  if (!value.is_array()) return invalid_argument("expected a JSON array of token ids");
  std::vector<int32_t> ids;
  for (const bj::value& entry : value.get_array()) {
    TROUPE_ASSIGN_OR_RETURN(int32_t id, token_id(entry, absl::StrCat("[", ids.size(), "]")));
    if (id >= tokenizer.vocab_size()) {
      return invalid_argument(absl::StrCat("[", ids.size(), "]: token id ", id,
                                           " is outside the vocabulary [0, ", tokenizer.vocab_size(), ")"));
    }
    ids.push_back(id);
  }
  std::string literal;
  append_json_string(literal, tokenizer.decode(ids, false));
  return literal;
}

}  // namespace

int tokenize_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                     std::ostream& err) {
  std::string model_dir;
  bool decode = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help") {
      out << kUsage;
      return 0;
    }
    if (args[i] == "--decode") {
      decode = true;
    } else if (args[i] == "--model" && i + 1 < args.size()) {
      model_dir = args[++i];
    } else {
      err << "unknown or incomplete argument: " << args[i] << "\n" << kUsage;
      return 2;
    }
  }
  if (model_dir.empty()) {
    err << "--model is missing\n" << kUsage;
    return 2;
  }
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::load(model_dir);
  if (!tokenizer.ok()) {
    err << tokenizer.status().message() << "\n";
    return 1;
  }
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    StatusOr<std::string> answer = decode ? text_line(**tokenizer, line) : ids_line(**tokenizer, line);
    if (!answer.ok()) {
      err << "line " << number << ": " << answer.status().message() << "\n";
      return 1;
    }
    out << *answer << "\n";
  }
  out.flush();
  return 0;
}

}  // namespace troupe
