// A backend's module that needs a library which the loader does not find (cublas_test.cc).

#include "kernels/host/module.h"

extern "C" {

int fake_cublas_version();

const char* troupe_backend_interface() {
  return troupe::kBackendInterface;
}

void troupe_find_device(troupe::StatusOr<std::string>& result) {
  result = "cuBLASLt " + std::to_string(fake_cublas_version());
}

void troupe_make_backend(const troupe::BackendOptions&,
                         troupe::StatusOr<std::unique_ptr<troupe::Backend>>& result) {
  result = absl::UnimplementedError("it computes nothing");
}
}
