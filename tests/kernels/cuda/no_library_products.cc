// There is no cuBLASLt on the CPU: plain tiles take its products.

#include "kernels/cuda/library_products.h"

namespace troupe::cuda {

StatusOr<std::unique_ptr<LibraryProducts>> make_library_products() {
  return std::unique_ptr<LibraryProducts>();
}

}  // namespace troupe::cuda
