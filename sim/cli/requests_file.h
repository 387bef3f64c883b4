#pragma once

// The file of --requests (request_lines.h has its format), for commands with a single run.

#include <optional>
#include <string>

#include "common/core/status.h"
#include "common/settings/schema.h"
#include "sim/fleet/request_lines.h"
#include "sim/report/output_file.h"

namespace troupe::sim {

void describe_requests(SettingsSchema& schema, std::string& path);

class RequestsFile {
 public:
  // Empty path: no file. Errors name the flag or the path.
  static StatusOr<RequestsFile> open(const std::string& path);
  // Returns the function that writes a line; null without a file. REQUIRES: this object does not move.
  OnRequest on_request();
  Status close();

 private:
  std::optional<OutputFile> file_;
  std::string line_;
};

}  // namespace troupe::sim
