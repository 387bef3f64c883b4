#include "common/core/status.h"

#include "absl/strings/str_cat.h"

namespace troupe {

Status annotate(const Status& status, std::string_view where) {
  if (status.ok()) return status;
  Status annotated(status.code(), absl::StrCat(to_absl(where), ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view type_url, const absl::Cord& payload) {
    annotated.SetPayload(type_url, payload);
  });
  return annotated;
}

}  // namespace troupe
