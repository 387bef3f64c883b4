#include "worker/model/load/host_memory.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "common/core/regular_file.h"

namespace troupe {

namespace {

constexpr size_t kFileBytesMax = size_t{64} << 10;
constexpr int kLevelsMax = 64;  // of control groups

// Empty: it cannot be read.
std::string text_of(const std::string& path) {
  StatusOr<std::string> text = read_regular_file(path, kFileBytesMax);
  return text.ok() ? *std::move(text) : std::string();
}

std::optional<int64_t> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

// The number behind `name` at the beginning of a line.
std::optional<int64_t> field_of(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) return number_at(line.substr(name.size()));
    at = end + 1;
  }
  return std::nullopt;
}

// The path of the process's group in /proc/self/cgroup, whose lines are "ID:CONTROLLERS:PATH".
std::optional<std::string> group_of(std::string_view groups, std::string_view controllers) {
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string_view line = groups.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos || line.substr(first + 1, second - first - 1) != controllers) continue;
    return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

struct GroupFiles {
  std::string_view limit, used, inactive_pages, active_pages;
};
constexpr GroupFiles kSecond{"/memory.max", "/memory.current", "inactive_file ", "active_file "};
constexpr GroupFiles kFirst{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file ",
                            "total_active_file "};

std::optional<HostMemory> left_in(const std::string& folder, const GroupFiles& files) {
  const std::string source = folder + std::string(files.limit);
  const auto limit = number_at(text_of(source));  // ("max": there is none)
  const auto used = number_at(text_of(folder + std::string(files.used)));
  if (!limit || !used) return std::nullopt;
  const std::string pages = text_of(folder + "/memory.stat");
  const int64_t inactive = std::min(field_of(pages, files.inactive_pages).value_or(0), *used);
  const int64_t active = std::min(field_of(pages, files.active_pages).value_or(0), *used - inactive);
  return HostMemory{std::max<int64_t>(*limit - (*used - inactive - active), 0), source};
}

void keep_less(std::optional<HostMemory>& least, const std::optional<HostMemory>& other) {
  if (other && (!least || other->free_bytes < least->free_bytes)) least = other;
}

// The least of the group and all those around it. In a container the path may be the host's, of which only
// the innermost folder is there, as the root.
void keep_least_of_groups(const std::string& mount, std::string group, const GroupFiles& files,
                          std::optional<HostMemory>& least) {
  for (int level = 0; level < kLevelsMax; ++level) {
    while (group.ends_with('/')) group.pop_back();
    keep_less(least, left_in(mount + group, files));
    if (group.empty()) return;
    group.resize(group.rfind('/') == group.npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::optional<HostMemory> host_memory(const std::string& root) {
  std::optional<HostMemory> least;
  const std::string machine = root + "/proc/meminfo";
  const auto kib = field_of(text_of(machine), "MemAvailable:");
  if (kib && *kib <= std::numeric_limits<int64_t>::max() >> 10) least = HostMemory{*kib << 10, machine};
  const std::string groups = text_of(root + "/proc/self/cgroup");
  if (const auto group = group_of(groups, ""))
    keep_least_of_groups(root + "/sys/fs/cgroup", *group, kSecond, least);
  if (const auto group = group_of(groups, "memory"))
    keep_least_of_groups(root + "/sys/fs/cgroup/memory", *group, kFirst, least);
  return least;
}

}  // namespace troupe
