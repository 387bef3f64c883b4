#pragma once

// A backend in a shared object of its own, opened at run time: one program runs on machines with and without
// the accelerator's libraries.

#include <memory>
#include <string>
#include <string_view>

#include "kernels/kernels.h"

namespace troupe {

// The interface that program and module must agree on: kernels.h and the compiler. To be raised with every
// change of a class or struct in kernels.h.
inline constexpr const char* kBackendInterface = "troupe-backend-12 " __VERSION__;

// The path of libtroupe-NAME.so of this program: ../lib beside the program's folder.
std::string module_path(std::string_view name);

// Both leave the module at `path` open to the end of the process. kUnavailable where it cannot be opened, is
// of another build, or finds no device it can use; the message says which. kNotFound where there is no
// device. cuBLASLt is also looked for where the loader does not look (cublas_folders.h).
//
// The device that a backend of it would take, in words.
StatusOr<std::string> find_device(const std::string& path);
// Its backend.
StatusOr<std::unique_ptr<Backend>> open_backend(const std::string& path, const BackendOptions& options);

}  // namespace troupe
