// The fields a gateway adds to a body so that this worker resumes a stream which another began.

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr size_t kIdBytesMax = 1024;

Fault read_ids(dom::element value, std::vector<int32_t>& ids) {
  if (!value.is_array()) return expected("troupe_resume.ids", "a list of token ids", value);
  return read_id_list("troupe_resume.ids", value.get_array().value_unsafe(), ids);
}

Fault read_created(dom::element value, std::optional<int64_t>& created_s) {
  int64_t seconds = 0;
  if (auto fault = read_integer("troupe_resume.created", value, {.min = 0}, seconds)) return fault;
  created_s = seconds;
  return std::nullopt;
}

}  // namespace

Fault read_resume(std::string_view param, dom::element value, std::optional<ResumedStream>& out) {
  if (!value.is_object()) return expected(param, "an object with 'ids' and 'seed'", value);
  ResumedStream resume;
  bool has_ids = false;
  std::optional<uint64_t> seed;
  const dom::object fields = value.get_object().value_unsafe();
  for (const auto field : fields) {
    Fault fault;
    if (field.value.is_null()) continue;
    if (field.key == "ids") {
      has_ids = true;
      fault = read_ids(field.value, resume.ids);
    } else if (field.key == "seed") {
      fault = read_seed("troupe_resume.seed", field.value, seed);
    } else if (field.key == "id") {
      fault = read_string("troupe_resume.id", field.value, kIdBytesMax, resume.id);
    } else if (field.key == "created") {
      fault = read_created(field.value, resume.created_s);
    }
    if (fault) return fault;
  }
  if (!has_ids) return missing("troupe_resume.ids", "a list of token ids");
  if (!seed) return missing("troupe_resume.seed", "the seed that the stream told in its first chunk");
  resume.seed = *seed;
  out = std::move(resume);
  return std::nullopt;
}

Fault check_resume(const GenerateRequest& request) {
  if (!request.resume) return std::nullopt;
  if (!request.stream) {
    return ApiError::bad_field("stream", "'stream' must be true where 'troupe_resume' is there.");
  }
  if (request.n != 1) {
    return ApiError::bad_field(
        "n", absl::StrCat("'n' must be 1 where 'troupe_resume' is there, not ", request.n, "."));
  }
  if (!request.more_prompts.empty())
    return ApiError::bad_field("prompt", "'prompt' must be one prompt where 'troupe_resume' is there.");
  if (request.seed && *request.seed != request.resume->seed) {
    return ApiError::bad_field("troupe_resume.seed",
                               absl::StrCat("'troupe_resume.seed' must be what 'seed' is, ", *request.seed,
                                            ", not ", request.resume->seed, "."));
  }
  return std::nullopt;
}

}  // namespace troupe
