#pragma once

// The text-in side of a stream that is gone on with: what the ids that were told already come to. The text
// sent so far is a function of them (Detokenizer), so whoever knows them knows what is still to be sent.

#include <optional>
#include <vector>

#include "common/api/api.h"
#include "worker/input/prompt_pipeline.h"

namespace troupe {

// Takes `resume` into `prepared`, whose other fields are those of the same request from its beginning.
// `count_max`: the most ids that the answer may have. Errors (400) name the field of `troupe_resume`: ids
// that the model does not have, too many, or some behind the answer's end.
std::optional<ApiError> take_resume(const ServedModel& model, const ResumedStream& resume, int64_t count_max,
                                    PreparedRequest& prepared);

}  // namespace troupe
