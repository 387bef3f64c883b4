#pragma once

// The names by which a program's log level is set.

#include "common/core/log.h"
#include "common/settings/schema.h"

namespace troupe {

inline constexpr EnumName<LogLevel> kLogLevelNames[] = {{"debug", LogLevel::kDebug},
                                                        {"info", LogLevel::kInfo},
                                                        {"warn", LogLevel::kWarn},
                                                        {"error", LogLevel::kError}};

}  // namespace troupe
