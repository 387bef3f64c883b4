#include "kernels/backends.h"

#include <dlfcn.h>

#include "kernels/cpu/backend.h"
#include "kernels/host/module.h"
#include "kernels/ref/backend.h"

namespace troupe {

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

StatusOr<std::string> find_cuda_device() {
  // Without a driver there is no device, and the module's libraries, half a gigabyte, need not be opened to
  // know it.
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    const char* const reason = dlerror();
    return absl::NotFoundError(std::string("no NVIDIA driver: ") +
                               (reason == nullptr ? "libcuda.so.1" : reason));
  }
  dlclose(driver);
  return find_device(module_path("cuda"));
}

}  // namespace troupe
