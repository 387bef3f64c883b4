#include "kernels/backends.h"

#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/core/environment.h"
#include "kernels/cpu/backend.h"
#include "kernels/host/module.h"
#include "kernels/ref/backend.h"

namespace troupe {

namespace {

// OK where there is a driver that knows a device; kNotFound says what is missing.
Status ask_driver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    const char* const reason = dlerror();
    return absl::NotFoundError(
        absl::StrCat("no NVIDIA driver: ", reason == nullptr ? "libcuda.so.1 is missing" : reason));
  }
  // (CUDA's driver interface.) A driver's library may be on a machine without a GPU.
  constexpr int kNoDevice = 100;
  const auto begin = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  if (begin != nullptr && begin(0) == kNoDevice)
    return absl::NotFoundError("NVIDIA's driver finds no device");
  return absl::OkStatus();
}

// "/dev/nvidia0", or empty.
std::string device_file(const std::string& folder) {
  constexpr std::string_view kName = "nvidia";
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kName) && name.size() > kName.size() &&
        name.find_first_not_of("0123456789", kName.size()) == std::string::npos) {
      return at->path().string();
    }
  }
  return "";
}

bool devices_are_hidden() {
  const auto devices = environment_variable("CUDA_VISIBLE_DEVICES");
  return devices && (devices->empty() || *devices == "-1" || *devices == "NoDevFiles");
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  if (options.dtype != DType::kFloat32 && options.dtype != DType::kBFloat16) {
    return invalid_argument("dtype of a backend must be float32 or bfloat16, got " +
                            std::string(dtype_name(options.dtype)));
  }
  if (options.threads < 1) {
    return invalid_argument("threads must be at least 1, got " + std::to_string(options.threads));
  }
  if (name == "ref") return ref::make_ref_backend(options);
  if (name == "cpu") return cpu::make_cpu_backend(options);
  if (name == "cuda") return open_backend(module_path(name), options);
  if (name.find('/') != std::string_view::npos) return open_backend(std::string(name), options);
  return invalid_argument("unknown backend '" + std::string(name) + "'; known: ref, cpu, cuda");
}

StatusOr<std::string> find_cuda_device(const std::string& device_files) {
  // The driver is asked first: the module's libraries, half a gigabyte, need not be opened where there is no
  // device.
  const Status seen = ask_driver();
  if (seen.ok()) {
    auto device = find_device(module_path("cuda"));
    if (device.status().code() != absl::StatusCode::kNotFound) return device;
  }
  const std::string file = device_file(device_files);
  if (file.empty() || devices_are_hidden()) return absl::NotFoundError(seen.message());
  return absl::UnavailableError(absl::StrCat(
      "there is a GPU (", file, "), but ", seen.ok() ? "CUDA finds no device" : seen.message(),
      ". Install NVIDIA's driver, or start the container with its GPUs (docker run --gpus all)"));
}

}  // namespace troupe
