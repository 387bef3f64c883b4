#include "kernels/cuda/gemm/weight_upload.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/core/check.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "pack";
// Less than this is not worth another thread.
constexpr int64_t kElementsPerThread = int64_t{1} << 19;

}  // namespace

int upload_threads() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

std::unique_ptr<WeightUpload> WeightUpload::make(cudaStream_t stream, const Options& options) {
  auto upload = std::unique_ptr<WeightUpload>(new WeightUpload(stream, options));
  if (upload->allocate()) return upload;
  cudaGetLastError();  // it is forgotten
  return nullptr;
}

WeightUpload::WeightUpload(cudaStream_t stream, const Options& options) : stream_(stream), options_(options) {
  TROUPE_CHECK(options.threads >= 1 && options.piece_bytes >= sizeof(float),
               std::to_string(options.threads) + " threads, pieces of " +
                   std::to_string(options.piece_bytes) + " bytes");
}

bool WeightUpload::allocate() {
  for (Piece& piece : pieces_) {
    if (cudaMallocHost(&piece.memory, options_.piece_bytes) != cudaSuccess) {
      piece.memory = nullptr;
      return false;
    }
    if (cudaEventCreateWithFlags(&piece.fetched, cudaEventDisableTiming) != cudaSuccess) {
      piece.fetched = nullptr;
      return false;
    }
  }
  return true;
}

WeightUpload::~WeightUpload() {
  cudaStreamSynchronize(stream_);
  for (const Piece& piece : pieces_) {
    if (piece.fetched != nullptr) cudaEventDestroy(piece.fetched);
    if (piece.memory != nullptr) cudaFreeHost(piece.memory);
  }
}

void WeightUpload::copy(const Tensor& from, const Tensor& to) {
  TROUPE_CHECK(from.elements() == to.elements(), from.shape_text() + " to " + to.shape_text());
  const auto size = static_cast<int64_t>(dtype_size(to.dtype));
  const int64_t piece_elements = static_cast<int64_t>(options_.piece_bytes) / size;
  for (int64_t first = 0; first < from.elements(); first += piece_elements) {
    const int64_t count = std::min(piece_elements, from.elements() - first);
    const Piece& piece = pieces_[next_++ % pieces_.size()];
    check_cuda(kOp, cudaEventSynchronize(piece.fetched));  // at once where it was never recorded
    fill(piece.memory, from, first, count, to.dtype);
    check_cuda(kOp, cudaMemcpyAsync(to.as<char>() + first * size, piece.memory,
                                    static_cast<size_t>(count * size), cudaMemcpyHostToDevice, stream_));
    check_cuda(kOp, cudaEventRecord(piece.fetched, stream_));
  }
}

// Elements [first, first + count) as `dtype`.
void WeightUpload::fill(char* memory, const Tensor& from, int64_t first, int64_t count, DType dtype) const {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  const Tensor values = Tensor::make(memory, dtype, {count});
  const auto fill_part = [&](int64_t begin, int64_t end) {
    if (from.dtype == dtype) {
      std::memcpy(memory + begin * size, from.as<const char>() + (first + begin) * size,
                  static_cast<size_t>((end - begin) * size));
      return;
    }
    for (int64_t i = begin; i < end; ++i) set_element(values, i, element(from, first + i));
  };
  const int64_t parts = std::clamp<int64_t>(count / kElementsPerThread, 1, options_.threads);
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back(fill_part, count * part / parts, count * (part + 1) / parts);
  }
  fill_part(0, count / parts);
}

}  // namespace troupe::cuda
