#pragma once

// SIGHUP: command line and file are read again as at the start, whole or not at all. What can change changes;
// of what cannot, and does in the file, the log says so.

#include <vector>

#include "common/core/log.h"
#include "common/settings/schema.h"
#include "gateway/config.h"
#include "gateway/gateway.h"

namespace troupe {

class Reload {
 public:
  // `values`: what was set at the start. All arguments outlive this.
  Reload(int argc, const char* const* argv, std::vector<SettingsSchema::Value> values, const Logger& log)
      : argc_(argc), argv_(argv), values_(std::move(values)), log_(log) {}

  // Says in the log what came of it. Rotated logs are opened anew in any case.
  void run(Gateway& gateway);

 private:
  Status take(Gateway& gateway, std::vector<SettingsSchema::Value>& fresh);
  void log_changes(const Gateway& gateway, const std::vector<SettingsSchema::Value>& fresh);

  const int argc_;
  const char* const* argv_;
  std::vector<SettingsSchema::Value> values_;  // in force
  const Logger& log_;
};

}  // namespace troupe
