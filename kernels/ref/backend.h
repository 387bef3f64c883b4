#pragma once

// Makes the reference backend of kernels.h: plain loops that tests hold the others against. Threads as
// kernels.h says.

#include <memory>

#include "kernels/kernels.h"

namespace troupe::ref {

// The "ref" backend. `options.threads` and `options.isa` mean nothing to it.
std::unique_ptr<Backend> make_ref_backend(const BackendOptions& options);

}  // namespace troupe::ref
