// The symbols that libtroupe-cuda.so exports (kernels/host/module.h): its interface, its device and its
// backend.

#include "kernels/host/module.h"

#include "kernels/cuda/backend.h"
#include "kernels/cuda/device/find_device.h"

extern "C" {

__attribute__((visibility("default"))) const char* troupe_backend_interface() {
  return troupe::kBackendInterface;
}

__attribute__((visibility("default"))) void troupe_find_device(troupe::StatusOr<std::string>& result) {
  result = troupe::cuda::find_device();
}

__attribute__((visibility("default"))) void troupe_make_backend(
    const troupe::BackendOptions& options, troupe::StatusOr<std::unique_ptr<troupe::Backend>>& result) {
  result = troupe::cuda::make_cuda_backend(options);
}
}
