#include "common/dialects/dialect.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/api/sse.h"
#include "common/core/status.h"

namespace troupe {
namespace {

// Whether `name` is `path`, or a field below it.
bool names(std::string_view path, std::string_view name) {
  if (!name.starts_with(path)) return false;
  return name.size() == path.size() || name[path.size()] == '.' || name[path.size()] == '[';
}

}  // namespace

void DialectAnswer::fail(const AnswerError& failed, std::string& out) {
  append_sse_data(out, error(failed));
}

void rename_fields(const Renames& renames, AnswerError& error) {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& rename : renames)
    if (names(rename.first, error.param) && (best == nullptr || rename.first.size() > best->first.size()))
      best = &rename;
  if (best == nullptr) return;
  std::string renamed = best->second + error.param.substr(best->first.size());
  if (renamed.front() == '!') {
    renamed.erase(0, 1);
    error.message = absl::StrReplaceAll(
        error.message, {{"set it to false", "set it to true"}, {"set it to true", "set it to false"}});
  }
  error.message =
      absl::StrReplaceAll(error.message, {{absl::StrCat("'", error.param), absl::StrCat("'", renamed)}});
  error.param = renamed;
}

}  // namespace troupe
