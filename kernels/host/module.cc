#include "kernels/host/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "kernels/host/cublas_folders.h"

namespace troupe {

namespace {

// A module's exported symbols (kernels/cuda/module.cc).
struct Module {
  void (*find_device)(StatusOr<std::string>&) = nullptr;
  void (*make_backend)(const BackendOptions&, StatusOr<std::unique_ptr<Backend>>&) = nullptr;
};

template <typename F>
void find(void* module, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(module, name));
}

// Opens the file and all that it needs; cuBLASLt also from where the loader does not look.
StatusOr<void*> open_file(const std::string& path) {
  std::error_code error;
  if (path.find('/') != std::string::npos && !std::filesystem::exists(path, error)) {
    return absl::UnavailableError(path + ": there is no such file: this is a build without that backend");
  }
  const auto places = CublasPlaces::of_environment();
  open_named_cublas(places);
  for (bool searched = false;; searched = true) {
    if (void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); opened != nullptr) return opened;
    const char* const said = dlerror();
    const std::string reason = said == nullptr ? path + ": cannot be opened" : said;
    const std::string library = missing_cublas(reason);
    if (searched || library.empty()) return absl::UnavailableError(reason);
    TROUPE_RETURN_IF_ERROR(open_cublas(library, places));
  }
}

StatusOr<Module> open_module(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(void* const opened, open_file(path));
  const char* (*interface)() = nullptr;
  Module module;
  find(opened, "troupe_backend_interface", interface);
  find(opened, "troupe_find_device", module.find_device);
  find(opened, "troupe_make_backend", module.make_backend);
  if (interface == nullptr || module.find_device == nullptr || module.make_backend == nullptr) {
    return absl::UnavailableError(path + " is no backend module");
  }
  if (std::string_view(interface()) != kBackendInterface) {
    return absl::UnavailableError(absl::StrCat(path, " is of another build: it speaks '", interface(),
                                               "', this program '", kBackendInterface, "'"));
  }
  return module;
}

}  // namespace

std::string module_path(std::string_view name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = error ? std::filesystem::path(".") : program.parent_path();
  return (folder.parent_path() / "lib" / ("libtroupe-" + std::string(name) + ".so")).string();
}

StatusOr<std::string> find_device(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const Module module, open_module(path));
  StatusOr<std::string> device = absl::UnavailableError("not asked");
  module.find_device(device);
  return device;
}

StatusOr<std::unique_ptr<Backend>> open_backend(const std::string& path, const BackendOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const Module module, open_module(path));
  StatusOr<std::unique_ptr<Backend>> backend = absl::UnavailableError("not made");
  module.make_backend(options, backend);
  return backend;
}

}  // namespace troupe
