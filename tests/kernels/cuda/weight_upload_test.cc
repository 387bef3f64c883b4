// Weights through pinned memory: every element arrives, as its type, whatever the pieces' size.

#include "kernels/cuda/gemm/weight_upload.h"

#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::weight_upload_test {

using namespace cuda_testing;

TEST(WeightUpload, EveryElementArrives) {
  std::mt19937 random(6);
  for (const size_t piece_bytes : {size_t{64}, size_t{1000}, size_t{8} << 20}) {
    const auto upload = cuda::WeightUpload::make(nullptr, {.threads = 3, .piece_bytes = piece_bytes});
    ASSERT_NE(upload, nullptr);
    for (const int64_t count : {1, 15, 16, 17, 1003, 1700001}) {
      if (piece_bytes < 5000 && count > 2000) continue;
      for (const DType from : {DType::kFloat32, DType::kBFloat16}) {
        for (const DType to : {DType::kFloat32, DType::kBFloat16}) {
          const auto values = OwnedTensor::random(from, {count}, random);
          OwnedTensor device(to, {count}), truth(to, {count});
          upload->copy(values.view(), device.view());
          for (int64_t i = 0; i < count; ++i) set_element(truth.view(), i, static_cast<float>(values.at(i)));
          EXPECT_TRUE(same_bits(device.view(), truth.view())) << piece_bytes << ", " << count;
        }
      }
    }
  }
}

}  // namespace troupe::weight_upload_test
