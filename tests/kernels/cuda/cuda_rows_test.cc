// embed, gather_rows, rms_norm, silu_mul, rope_kv and copy_blocks on the emulated GPU against ref.

#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::cuda_rows_test {

using namespace cuda_testing;

class CudaRows : public testing::TestWithParam<DType> {
 protected:
  double epsilon() const { return epsilon_of(dtype_); }
  DType dtype_ = GetParam();
  std::unique_ptr<Backend> cuda_ = make_cuda(dtype_);
  std::unique_ptr<Backend> ref_ = make_ref(dtype_);
  std::mt19937 random_{11};
};

std::string type_name(const testing::TestParamInfo<DType>& param) {
  return std::string(dtype_name(param.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaRows, testing::Values(DType::kFloat32, DType::kBFloat16), type_name);

// One element, tails of a block, more than a block's columns.
constexpr int64_t kColumns[] = {1, 31, 72, 256, 1500};

TEST_P(CudaRows, RmsNormIsRefs) {
  std::vector<int64_t> widths(std::begin(kColumns), std::end(kColumns));
  // Whole pieces, as many as registers are made for, and rows longer than they hold.
  widths.insert(widths.end(), {4096, 4100, 8192, 8196});
  for (const int64_t columns : widths) {
    const auto x = OwnedTensor::random(DType::kFloat32, {3, columns}, random_, 3.0f);
    const auto weight = OwnedTensor::random(DType::kFloat32, {columns}, random_);
    OwnedTensor truth(dtype_, {3, columns});
    ref_->rms_norm({x.view(), weight.view(), 1e-5f, truth.view()});
    const auto out = in_every_order(dtype_, {3, columns}, [&](const Tensor& to) {
      cuda_->rms_norm({x.view(), weight.view(), 1e-5f, to});
    });
    const double relative = (static_cast<double>(columns) / 2 + 8) * kFloatEpsilon + 2 * epsilon();
    EXPECT_EQ(difference(out, truth, [&](int64_t i) { return relative * std::abs(truth.at(i)); }),
              std::nullopt)
        << columns;
  }
}

TEST_P(CudaRows, SiluMulIsRefsOverTheWholeRangeAndKeepsNaNs) {
  for (const int64_t columns : {1, 7, 8, 40, 2048}) {
    auto gate_up = OwnedTensor::random(dtype_, {3, 2 * columns}, random_, 4.0f);
    const bool edges = columns >= 40;
    if (edges) {
      const float values[] = {-87.0f, -90.0f, -120.0f, -1e30f, 87.0f, 90.0f, 1e30f, -1e-30f, std::nanf("")};
      for (int64_t i = 0; i < 9; ++i) set_element(gate_up.view(), i, values[i]);
    }
    OwnedTensor truth(dtype_, {3, columns});
    ref_->silu_mul({gate_up.view(), truth.view()});
    const auto out = in_every_order(dtype_, {3, columns}, [&](const Tensor& to) {
      cuda_->silu_mul({gate_up.view(), to});
    });
    if (edges) {
      EXPECT_TRUE(std::isnan(out.at(8)));
      set_element(out.view(), 8, 0);
      set_element(truth.view(), 8, 0);
    }
    const auto tolerance = [&](int64_t i) {
      return 2 * (4 * kFloatEpsilon + epsilon()) * std::abs(truth.at(i)) + 1e-35;
    };
    EXPECT_EQ(difference(out, truth, tolerance), std::nullopt) << columns;
  }
}

TEST_P(CudaRows, EmbedAndGatherAreExact) {
  const std::vector<int32_t> ids{4, 0, 0, 9};
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int64_t columns : kColumns) {
      OwnedTensor table(type, {10, columns});
      for (int64_t i = 0; i < table.elements(); ++i) {
        if (type == DType::kFloat16) {  // every kind of half but infinities and NaN
          table.view().as<uint16_t>()[i] = static_cast<uint16_t>((i * 2731) % 0x7bff | (i % 2) << 15);
        } else {
          set_element(table.view(), i, static_cast<float>(i) - 100.5f);
        }
      }
      OwnedTensor truth(DType::kFloat32, {4, columns});
      ref_->embed({ids, table.view(), truth.view()});
      const auto out = in_every_order(DType::kFloat32, {4, columns}, [&](const Tensor& to) {
        cuda_->embed({ids, table.view(), to});
      });
      EXPECT_TRUE(same_bits(out.view(), truth.view())) << dtype_name(type) << " " << columns;
      std::vector<int32_t> names = ids;
      const std::vector<int32_t> drawn{ids[3], ids[0], kNoDraw};
      names[0] = -2;
      names[2] = -3;  // whatever is not read: the first row
      names[3] = -1;
      const auto named = in_every_order(DType::kFloat32, {4, columns}, [&](const Tensor& to) {
        cuda_->embed(
            {names, table.view(), to, Tensor::make(const_cast<int32_t*>(drawn.data()), DType::kInt32, {3})});
      });
      EXPECT_TRUE(same_bits(named.view(), truth.view())) << dtype_name(type) << " " << columns;
      const auto gathered = in_every_order(DType::kFloat32, {4, columns}, [&](const Tensor& to) {
        cuda_->gather_rows({truth.view(), std::vector<int32_t>{3, 3, 0, 2}, to});
      });
      EXPECT_TRUE(same_bits(gathered.rows(0, 1), truth.rows(3, 1)));
      EXPECT_TRUE(same_bits(gathered.rows(2, 1), truth.rows(0, 1)));
    }
  }
}

// A step's KV memory, random everywhere.
OwnedTensor kv_memory(const KvLayout& layout, DType dtype, std::mt19937& random, int64_t blocks = 5) {
  return OwnedTensor::random(dtype, {blocks * layout.block_elements()}, random);
}

TEST_P(CudaRows, CopyBlocksCopiesWholeBlocksAndNothingElse) {
  const KvLayout layouts[] = {{2, 2, 64, 16}, {1, 1, 2, 1}, {3, 1, 6, 3}};
  const std::vector<BlockCopy> copies{{0, 4}, {2, 1}, {0, 3}};
  for (const KvLayout& layout : layouts) {
    auto memory = kv_memory(layout, dtype_, random_);
    auto truth = memory;
    ref_->bind_kv(layout, truth.view().data, 5);
    ref_->copy_blocks(copies);
    cuda_->bind_kv(layout, memory.view().data, 5);
    cuda_->copy_blocks(copies);
    EXPECT_TRUE(memory == truth);
  }
}

struct RopeCase {
  int heads, kv_heads, head_dim;
  bool norms, rotates;
};

TEST_P(CudaRows, RopeKvWritesRefsQueriesAndSlots) {
  const RopeCase cases[] = {{4, 2, 64, false, true}, {3, 1, 128, true, true},  {2, 2, 80, true, true},
                            {8, 1, 6, false, true},  {4, 4, 64, false, false}, {2, 1, 256, true, true}};
  for (const RopeCase& c : cases) {
    const KvLayout layout{2, c.kv_heads, c.head_dim, 16};
    const int64_t tokens = 5;
    const std::vector<int32_t> positions{3, 0, 29, 7, 8}, slots{19, 0, 79, 33, 34};
    const auto qkv =
        OwnedTensor::random(dtype_, {tokens, int64_t{c.heads + 2 * c.kv_heads} * c.head_dim}, random_);
    const auto table = OwnedTensor::random(DType::kFloat32, {30, c.head_dim}, random_);
    const auto q_norm = OwnedTensor::random(DType::kFloat32, {c.head_dim}, random_);
    const auto k_norm = OwnedTensor::random(DType::kFloat32, {c.head_dim}, random_);
    const auto before = kv_memory(layout, dtype_, random_);
    const auto run = [&](Backend& backend, const OwnedTensor& memory, const Tensor& q_out) {
      backend.bind_kv(layout, memory.view().data, 5);
      backend.rope_kv({.qkv = qkv.view(),
                       .cos_sin = c.rotates ? table.view() : Tensor{},
                       .positions = positions,
                       .slots = slots,
                       .layer = 1,
                       .q_out = q_out,
                       .q_norm = c.norms ? q_norm.view() : Tensor{},
                       .k_norm = c.norms ? k_norm.view() : Tensor{}});
    };
    OwnedTensor truth(dtype_, {tokens, c.heads, c.head_dim});
    const auto true_memory = before;
    run(*ref_, true_memory, truth.view());
    OwnedTensor memory = before;
    const auto q = in_every_order(dtype_, {tokens, c.heads, c.head_dim}, [&](const Tensor& to) {
      memory = before;
      run(*cuda_, memory, to);
    });
    // Two products of size up to the row's largest (some 4 · 4 · 4), rounded in other orders; then out's.
    const auto tolerance = [&](double value) {
      return 200 * kFloatEpsilon + 2.02 * epsilon() * std::abs(value);
    };
    EXPECT_EQ(difference(q, truth, [&](int64_t i) { return tolerance(truth.at(i)); }), std::nullopt)
        << c.head_dim;
    EXPECT_EQ(difference(memory, true_memory, [&](int64_t i) { return tolerance(true_memory.at(i)); }),
              std::nullopt)
        << c.head_dim;
  }
}

}  // namespace troupe::cuda_rows_test
