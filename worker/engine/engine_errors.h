#pragma once

// Why the engine gave no answer, as the API says it.

#include "common/api/error.h"
#include "common/core/status.h"

namespace troupe {

ApiError submit_error(const Status& status);  // it did not take the request
ApiError step_error(const Status& status);    // it ended the request
ApiError deadline_error();

}  // namespace troupe
