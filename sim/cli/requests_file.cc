#include "sim/cli/requests_file.h"

#include <utility>

namespace troupe::sim {

void describe_requests(SettingsSchema& schema, std::string& path) {
  schema.add("requests", &path, "write what became of each request here, a line of JSON each as it ends")
      .path();
}

StatusOr<RequestsFile> RequestsFile::open(const std::string& path) {
  if (path == "-") return invalid_argument("--requests: must be a file; stdout is for the report");
  RequestsFile out;
  if (path.empty()) return out;
  TROUPE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::open(path));
  out.file_.emplace(std::move(file));
  return out;
}

OnRequest RequestsFile::on_request() {
  if (!file_) return nullptr;
  return [this](const RequestLine& line) {
    line_.clear();
    append_request_line(line_, line);
    file_->write(line_);
  };
}

Status RequestsFile::close() {
  return file_ ? file_->close() : absl::OkStatus();
}

}  // namespace troupe::sim
