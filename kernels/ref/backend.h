#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace troupe::ref {

// The "ref" backend. `options.threads` and `options.isa` mean nothing to it.
std::unique_ptr<Backend> make_ref_backend(const BackendOptions& options);

}  // namespace troupe::ref
