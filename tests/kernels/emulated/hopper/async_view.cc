#include "tests/kernels/emulated/hopper/async_view.h"

#include <algorithm>
#include <cstring>

namespace troupe::emulated {

void AsyncView::reset(size_t bytes) {
  bytes_.assign(bytes, 0xFF);
  stores_.clear();
  barriers_.clear();
}

void AsyncView::fence(int thread) {
  for (const Store& store : stores_) {
    if (store.thread == thread) std::memcpy(bytes_.data() + store.offset, &store.value, sizeof(store.value));
  }
  std::erase_if(stores_, [&](const Store& store) { return store.thread == thread; });
}

void AsyncView::fence_barriers(int thread) {
  std::erase_if(barriers_, [&](const auto& made) { return made.first == thread; });
}

bool AsyncView::is_unpublished(const void* barrier) const {
  return std::any_of(barriers_.begin(), barriers_.end(),
                     [&](const auto& made) { return made.second == barrier; });
}

}  // namespace troupe::emulated
