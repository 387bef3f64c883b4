#pragma once

// Makes a program's backend: the one place that knows all of them, and how a module is found.

#include <memory>
#include <string>
#include <string_view>

#include "kernels/kernels.h"

namespace troupe {

// `name`: "ref", "cpu", "cuda", or the path of a backend module (host/module.h; has a slash), which cuda is
// one of. kInvalidArgument names what exists; kUnavailable says why a module cannot be had.
StatusOr<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options);
// The device a "cuda" backend would compute on, in words. kUnavailable where the machine has a GPU that
// cannot be used: why, and what to install. kNotFound where it has none: neither a driver that knows one nor
// a file in `device_files`, or where CUDA_VISIBLE_DEVICES hides all of them.
StatusOr<std::string> find_cuda_device(const std::string& device_files = "/dev");

}  // namespace troupe
