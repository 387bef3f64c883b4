#include "kernels/tune.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/check.h"
#include "common/core/regular_file.h"

namespace troupe {

namespace {

// A device has some hundred shapes; a larger file is not ours.
constexpr size_t kEntriesMax = 20000;
constexpr size_t kLineMax = 4096;
constexpr size_t kFileBytesMax = size_t{8} << 20;

}  // namespace

Tuning::Tuning(std::string path) : path_(std::move(path)), entries_(read(path_)) {}

Tuning::Entries Tuning::read(const std::string& path) {
  Entries entries;
  // Without the file, or with something else in its place, all is measured anew.
  const auto text = path.empty() ? std::string() : read_regular_file(path, kFileBytesMax).value_or("");
  std::istringstream file(text);
  std::string line;
  while (entries.size() < kEntriesMax && std::getline(file, line)) {
    if (line.size() > kLineMax) break;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
    double microseconds = 0;
    if (fields.size() != 3 || fields[0].empty() || fields[1].empty()) continue;
    const char* const end = fields[2].data() + fields[2].size();
    if (std::from_chars(fields[2].data(), end, microseconds).ptr != end) continue;
    entries[std::string(fields[0])] = {std::string(fields[1]), microseconds};
  }
  return entries;
}

const std::string* Tuning::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.name;
}

void Tuning::put(std::string_view key, std::string_view name, double microseconds) {
  constexpr std::string_view kSeparators = "\t\n";
  TROUPE_CHECK(key.find_first_of(kSeparators) == std::string_view::npos &&
                   name.find_first_of(kSeparators) == std::string_view::npos,
               std::string(key) + " by " + std::string(name) + " would be no line of its own");
  entries_[std::string(key)] = {std::string(name), microseconds, /*own=*/true};
  changed_ = true;
}

Status Tuning::save() {
  if (path_.empty() || !changed_) return absl::OkStatus();
  Entries all = read(path_);
  for (const auto& [key, entry] : entries_) {
    if (entry.own) all[key] = entry;
  }
  const std::filesystem::path path(path_);
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  const std::string written = absl::StrCat(path_, ".", getpid());
  std::ofstream file(written, std::ios::trunc);
  for (const auto& [key, entry] : all)
    file << key << '\t' << entry.name << '\t' << entry.microseconds << '\n';
  file.close();
  if (!file.fail()) {
    std::filesystem::rename(written, path, error);
    if (!error) {
      changed_ = false;
      return absl::OkStatus();
    }
  }
  std::filesystem::remove(written, error);
  return absl::UnavailableError(absl::StrCat(path_, " cannot be written"));
}

}  // namespace troupe
