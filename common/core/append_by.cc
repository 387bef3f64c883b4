#include "common/core/append_by.h"

#include <algorithm>

namespace troupe {

size_t append_by(std::string& text, size_t room, absl::FunctionRef<size_t(char*)> fill) {
  const size_t have = text.size();
  size_t filled = 0;
  text.resize_and_overwrite(have + room, [&](char* begin, size_t) {
    filled = std::min(fill(begin + have), room);
    return have + filled;
  });
  return filled;
}

}  // namespace troupe
