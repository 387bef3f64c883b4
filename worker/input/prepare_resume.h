#pragma once

// The text-in side of a resumed stream: replays the ids that were already sent. The text sent so far is a
// function of them (Detokenizer), so the ids alone determine what is still to be sent.

#include <optional>
#include <vector>

#include "common/api/api.h"
#include "worker/input/prepared_request.h"
#include "worker/input/served_model.h"

namespace troupe {

// Applies `resume` to `prepared`, whose other fields describe the request from its beginning. `count_max`:
// the most ids the answer may have. Errors (400) name the field of `troupe_resume`: ids unknown to the model,
// too many, or some after the answer's end.
std::optional<ApiError> take_resume(const ServedModel& model, const ResumedStream& resume, int64_t count_max,
                                    PreparedRequest& prepared);

}  // namespace troupe
