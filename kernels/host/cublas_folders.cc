#include "kernels/host/cublas_folders.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/environment.h"

namespace troupe {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kLibrary = "libcublasLt.so.";
constexpr const char* kNamed = "TROUPE_CUBLAS_DIR";

// Entries of `folder` whose names begin so, the last of the alphabet first: cuda-13.1 before cuda-12.8.
std::vector<fs::path> entries(const fs::path& folder, std::string_view begin) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(begin)) found.push_back(at->path());
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

class Folders {
 public:
  void add(const fs::path& folder) {
    std::error_code error;
    std::string name = folder.string();
    if (!fs::is_directory(folder, error) || std::ranges::count(found_, name) > 0) return;
    found_.push_back(std::move(name));
  }
  // The folders of a Python whose bin/ is beside `lib`: conda's libraries are in that itself, PyPI's of CUDA
  // 13 in nvidia/cu13/lib and of CUDA 12 in nvidia/cublas/lib of its packages.
  void add_python(const fs::path& lib) {
    add(lib);
    for (const fs::path& python : entries(lib, "python3")) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path nvidia = python / packages / "nvidia";
        for (const fs::path& release : entries(nvidia, "cu1")) add(release / "lib");
        add(nvidia / "cublas/lib");
      }
    }
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

// PyPI and NVIDIA's Debian repository name their packages by version.
std::string what_to_install(const std::string& library) {
  const std::string major = library.substr(kLibrary.size());
  if (major == "12") return "`pip install nvidia-cublas-cu12` or `apt-get install libcublas-12-8`";
  return absl::StrCat("`pip install nvidia-cublas==", major, ".*` or `apt-get install libcublas-", major,
                      "-0`");
}

}  // namespace

CublasPlaces CublasPlaces::of_environment() {
  return {environment_variable(kNamed).value_or(""), environment_variable("PATH").value_or(""),
          environment_variable("HOME").value_or(""), ""};
}

std::vector<std::string> cublas_folders(const CublasPlaces& places) {
  Folders folders;
  if (!places.named.empty()) folders.add(places.named);
  const fs::path local = places.root + "/usr/local";
  folders.add(local / "cuda/lib64");
  for (const fs::path& toolkit : entries(local, "cuda-")) folders.add(toolkit / "lib64");
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(places.path, ':'))) {
    std::error_code error;
    if (!folder.empty() && fs::exists(fs::path(folder) / "python3", error)) {
      folders.add_python(fs::path(folder).parent_path() / "lib");
    }
  }
  folders.add_python(local / "lib");  // Debian's Python installs there, and has its python3 elsewhere
  if (!places.home.empty()) folders.add_python(fs::path(places.home) / ".local/lib");
  return folders.take();
}

std::string missing_cublas(std::string_view reason) {
  if (!reason.starts_with(kLibrary)) return "";
  const size_t end = reason.find_first_not_of("0123456789", kLibrary.size());
  if (end == std::string_view::npos || end == kLibrary.size() || reason[end] != ':') return "";
  return std::string(reason.substr(0, end));
}

Status open_cublas(const std::string& library, const CublasPlaces& places) {
  const std::vector<std::string> folders = cublas_folders(places);
  std::string refused;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + library;
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return absl::OkStatus();
    const char* const reason = dlerror();
    absl::StrAppend(&refused, "; ", reason == nullptr ? path.c_str() : reason);
  }
  return absl::UnavailableError(absl::StrCat(
      library, " (cuBLAS) is neither where the loader looks nor in ", kNamed,
      ", /usr/local/cuda*/lib64 or the packages of a python3 of the PATH (these folders are there: ",
      absl::StrJoin(folders, " "), ")", refused, ". Install it by ", what_to_install(library),
      " (NVIDIA's repository), or set ", kNamed, " to its folder"));
}

void open_named_cublas(const CublasPlaces& places) {
  if (places.named.empty()) return;
  for (const fs::path& file : entries(places.named, kLibrary)) {
    // Names of minor versions are links' targets; what is broken is found missing later.
    const std::string version = file.filename().string().substr(kLibrary.size());
    if (version.find_first_not_of("0123456789") == std::string::npos) {
      dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  }
}

}  // namespace troupe
