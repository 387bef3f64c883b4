// embed, rms_norm, silu_mul, gather_rows and copy_blocks of every backend and instruction set against the
// formula in float64.

#include "tests/kernels/kernel_testing.h"

namespace troupe::rows_test {

using namespace kernel_testing;

class Rows : public testing::TestWithParam<Variant> {
 protected:
  std::mt19937 random_{7};
  std::unique_ptr<Backend> backend_ = make(GetParam());
  DType dtype_ = GetParam().options.dtype;
};

// Whole vectors, tails of every instruction set, a single element.
constexpr int64_t kColumns[] = {1, 3, 16, 31, 72, 256, 2048};

TEST_P(Rows, RmsNormIsItsFormula) {
  for (int64_t columns : kColumns) {
    const int64_t rows = 5;
    const auto x = OwnedTensor::random(DType::kFloat32, {rows, columns}, random_, 3.0f);
    const auto weight = OwnedTensor::random(DType::kFloat32, {columns}, random_);
    OwnedTensor out(dtype_, {rows, columns});
    backend_->rms_norm({x.view(), weight.view(), 1e-5f, out.view()});
    std::vector<double> squares(static_cast<size_t>(rows), 0);
    for (int64_t i = 0; i < rows * columns; ++i)
      squares[static_cast<size_t>(i / columns)] += x.at(i) * x.at(i);
    const auto truth = [&](int64_t i) {
      const double mean = squares[static_cast<size_t>(i / columns)] / static_cast<double>(columns);
      return x.at(i) / std::sqrt(mean + 1e-5) * weight.at(i % columns);
    };
    // The sum's rounding grows with its length at most; one more rounding each for the root, two products,
    // out.
    const double relative = (static_cast<double>(columns) / 2 + 4) * kFloatEpsilon + epsilon_of(dtype_);
    EXPECT_EQ(first_difference(out, truth, [&](int64_t i) { return relative * std::abs(truth(i)); }),
              std::nullopt);
  }
}

TEST_P(Rows, SiluMulIsItsFormulaOverTheWholeRange) {
  for (int64_t columns : kColumns) {
    auto gate_up = OwnedTensor::random(dtype_, {3, 2 * columns}, random_, 4.0f);
    set_element(gate_up.view(), 0, 0.0f);
    if (columns > 20) {
      const float edges[] = {-87.0f, -90.0f, -120.0f, -1e30f, 87.0f, 90.0f, 1e30f, -1e-30f};
      for (int64_t i = 0; i < 8; ++i) set_element(gate_up.view(), i + 1, edges[i]);
    }
    OwnedTensor out(dtype_, {3, columns});
    backend_->silu_mul({gate_up.view(), out.view()});
    const auto truth = [&](int64_t i) {
      const int64_t row = i / columns;
      const double gate = gate_up.at(row * 2 * columns + i % columns);
      return gate / (1 + std::exp(-gate)) * gate_up.at((row * 2 + 1) * columns + i % columns);
    };
    // exp within 2e-7, four more roundings, out's; below e^-87 the sigmoid's last digits are gone (1e-35
    // absolute).
    const double relative = 2e-7 + 4 * kFloatEpsilon + epsilon_of(dtype_);
    const auto tolerance = [&](int64_t i) {
      const double up = std::abs(gate_up.at((i / columns * 2 + 1) * columns + i % columns));
      const double gate = std::abs(gate_up.at(i / columns * 2 * columns + i % columns));
      return relative * std::abs(truth(i)) + 1e-36 * (1 + up) * (1 + gate);
    };
    EXPECT_EQ(first_difference(out, truth, tolerance), std::nullopt) << columns;
  }
}

TEST_P(Rows, SiluMulKeepsNotANumberVisible) {
  OwnedTensor gate_up(dtype_, {1, 40});
  for (int64_t i = 0; i < 40; ++i) set_element(gate_up.view(), i, 1.0f);
  set_element(gate_up.view(), 3, std::nanf(""));
  OwnedTensor out(dtype_, {1, 20});
  backend_->silu_mul({gate_up.view(), out.view()});
  EXPECT_TRUE(std::isnan(out.at(3)));
  EXPECT_FALSE(std::isnan(out.at(2)));
}

TEST_P(Rows, AnElementsBitsDoNotDependOnItsPlace) {
  // The same pair at every position of a row: whole vectors and tails must agree.
  const int64_t columns = 37;
  OwnedTensor gate_up(dtype_, {1, 2 * columns});
  for (int64_t i = 0; i < columns; ++i) {
    set_element(gate_up.view(), i, -1.37f);
    set_element(gate_up.view(), columns + i, 0.73f);
  }
  OwnedTensor out(dtype_, {1, columns});
  backend_->silu_mul({gate_up.view(), out.view()});
  for (int64_t i = 1; i < columns; ++i) EXPECT_EQ(out.at(i), out.at(0)) << i;
}

TEST_P(Rows, EmbedReadsEveryCheckpointTypeExactly) {
  const int64_t columns = 27;
  const std::vector<int32_t> ids{4, 0, 4, 9};
  for (DType table_dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    OwnedTensor table(table_dtype, {10, columns});
    for (int64_t i = 0; i < table.elements(); ++i) {
      if (table_dtype == DType::kFloat16) {  // every kind of half but infinities and NaN
        table.view().as<uint16_t>()[i] = static_cast<uint16_t>((i * 2731) % 0x7bff | (i % 2) << 15);
      } else {
        set_element(table.view(), i, static_cast<float>(i) - 100.5f);
      }
    }
    OwnedTensor out(DType::kFloat32, {4, columns});
    backend_->embed({ids, table.view(), out.view()});
    const auto truth = [&](int64_t i) {
      return table.at(ids[static_cast<size_t>(i / columns)] * columns + i % columns);
    };
    EXPECT_EQ(first_difference(out, truth, [](int64_t) { return 0.0; }), std::nullopt);
  }
}

TEST_P(Rows, EmbedTakesWhatTheStepBeforeDrew) {
  const auto table = OwnedTensor::random(DType::kBFloat16, {10, 19}, random_);
  const std::vector<int32_t> drawn{7, 2, kNoDraw};
  OwnedTensor out(DType::kFloat32, {4, 19}), truth(DType::kFloat32, {4, 19});
  backend_->embed({std::vector<int32_t>{2, 5, 7, 0}, table.view(), truth.view()});
  backend_->embed({std::vector<int32_t>{-2, 5, -1, -3}, table.view(), out.view(),
                   Tensor::make(const_cast<int32_t*>(drawn.data()), DType::kInt32, {3})});
  EXPECT_TRUE(same_bits(out.view(), truth.view()));
}

TEST_P(Rows, GatherRowsPicksRows) {
  const auto x = OwnedTensor::random(DType::kFloat32, {6, 19}, random_);
  const std::vector<int32_t> rows{5, 0, 5};
  OwnedTensor out(DType::kFloat32, {3, 19});
  backend_->gather_rows({x.view(), rows, out.view()});
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(out.rows(i, 1), x.rows(rows[static_cast<size_t>(i)], 1)));
}

TEST_P(Rows, CopyBlocksCopiesWholeBlocksAndNothingElse) {
  const KvLayout layout{.layers = 3, .kv_heads = 2, .head_dim = 8, .block_size = 4};
  const int64_t blocks = 6;
  const auto kv = OwnedTensor::random(dtype_, {blocks, layout.block_elements()}, random_);
  const OwnedTensor before = kv;
  backend_->bind_kv(layout, kv.view().data, blocks);
  backend_->copy_blocks({});
  EXPECT_TRUE(kv == before);
  const std::vector<BlockCopy> copies{{4, 0}, {4, 5}, {1, 3}};
  backend_->copy_blocks(copies);
  const int64_t expected_from[] = {4, 1, 2, 1, 4, 4};
  for (int64_t block = 0; block < blocks; ++block) {
    EXPECT_TRUE(same_bits(kv.rows(block, 1), before.rows(expected_from[block], 1))) << "block " << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Rows, testing::ValuesIn(all_variants()), variant_label);

TEST(RowsInvariance, ThreadsChangeNoBit) {
  std::mt19937 random(3);
  const auto x = OwnedTensor::random(DType::kFloat32, {300, 700}, random);
  const auto weight = OwnedTensor::random(DType::kFloat32, {700}, random);
  std::vector<OwnedTensor> outs;
  for (int threads : {1, 3}) {
    OwnedTensor out(DType::kFloat32, {300, 700});
    make({"cpu", {.threads = threads}})->rms_norm({x.view(), weight.view(), 1e-5f, out.view()});
    outs.push_back(out);
  }
  EXPECT_TRUE(outs[0] == outs[1]);
}

}  // namespace troupe::rows_test
