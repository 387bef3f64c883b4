#pragma once

// The engine's errors as the API reports them.

#include "common/api/error.h"
#include "common/core/status.h"

namespace troupe {

ApiError submit_error(const Status& status);  // the engine did not take the request
ApiError step_error(const Status& status);    // the engine ended the request
ApiError deadline_error();

}  // namespace troupe
