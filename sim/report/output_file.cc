#include "sim/report/output_file.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

std::string temporary_of(const std::string& path) {
  return path + ".tmp";
}

// A device or a pipe is written in place: a rename over it would destroy it.
bool is_special(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored) &&
         !std::filesystem::is_directory(path, ignored);
}

Status cannot_write(const std::string& path) {
  return absl::UnknownError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace

Status check_outputs(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (path.empty() || path == "-") continue;
    if (is_special(path)) continue;
    const std::string temporary = temporary_of(path);
    const bool opens = std::ofstream(temporary, std::ios::binary).is_open();
    std::remove(temporary.c_str());
    if (!opens || std::filesystem::is_directory(path)) return cannot_write(path);
  }
  return absl::OkStatus();
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      temporary_(is_special(path_) ? std::string() : temporary_of(path_)),
      file_(temporary_.empty() ? path_ : temporary_, std::ios::binary) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

StatusOr<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile out(path);
  if (!out.file_.is_open() || std::filesystem::is_directory(path)) return cannot_write(path);
  return out;
}

void OutputFile::write(std::string_view text) {
  file_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

Status OutputFile::close() {
  file_.close();
  const std::string temporary = std::exchange(temporary_, {});
  const bool named = file_ && (temporary.empty() || std::rename(temporary.c_str(), path_.c_str()) == 0);
  if (named) return absl::OkStatus();
  if (!temporary.empty()) std::remove(temporary.c_str());
  return cannot_write(path_);
}

Status write_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::UnknownError("stdout: cannot be written");
  }
  TROUPE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::open(path));
  file.write(text);
  return file.close();
}

}  // namespace troupe::sim
