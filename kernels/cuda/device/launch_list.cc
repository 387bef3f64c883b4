#include "kernels/cuda/device/launch_list.h"

namespace troupe::cuda {

namespace {

constexpr size_t kAlignment = sizeof(void*);  // of heads

}  // namespace

unsigned char* LaunchList::add(const char* op, Issue made_by, size_t bytes) {
  const Head head{made_by, op, (bytes + kAlignment - 1) / kAlignment * kAlignment};
  const size_t begin = bytes_.size();
  bytes_.resize(begin + sizeof(Head) + head.bytes);
  std::memcpy(bytes_.data() + begin, &head, sizeof(Head));
  return bytes_.data() + begin + sizeof(Head);
}

void LaunchList::issue(cudaStream_t stream) const {
  for (size_t at = 0; at < bytes_.size();) {
    const Head head = read_values<Head>(bytes_.data() + at);
    at += sizeof(Head);
    head.issue(stream, head.op, bytes_.data() + at);
    at += head.bytes;
  }
}

bool LaunchList::operator==(const LaunchList& other) const {
  return bytes_.size() == other.bytes_.size() &&
         (bytes_.empty() || std::memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0);
}

}  // namespace troupe::cuda
