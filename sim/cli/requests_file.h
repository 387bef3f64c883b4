#pragma once

// What --requests names (request_lines.h says what is in it), of commands that are one run.

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
  // Empty: none is wanted. Errors name the flag or the path.
  static StatusOr<RequestsFile> open(const std::string& path);
  // Writes a line; null where none are wanted. REQUIRES: this stays where it is.
  OnRequest on_request();
  Status close();

 private:
  std::optional<OutputFile> file_;
  std::string line_;
};

}  // namespace troupe::sim
