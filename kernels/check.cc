#include "kernels/check.h"

#include <cstdio>
#include <cstdlib>

namespace troupe {

void check_failed(std::string_view op, std::string_view message) {
  std::fprintf(stderr, "kernels: %.*s: %.*s\n", static_cast<int>(op.size()), op.data(),
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace troupe
