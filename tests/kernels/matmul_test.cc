// Products of every backend and instruction set: right within their rounding, and bitwise independent of the
// batch, of the chunking and of the number of threads.

#include "kernels/cpu/product_plan.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::matmul_test {

using namespace kernel_testing;

struct Shape {
  int64_t columns;  // N
  int64_t depth;    // K
};

// The demo model's products (qkv, o, gate_up, down, logits), wide and deep ones, and odd ones.
const Shape kShapes[] = {{512, 256},  {256, 256}, {1408, 256}, {256, 704}, {4096, 256}, {640, 2048},
                         {192, 5632}, {131, 259}, {48, 33},    {1, 1},     {7, 1000}};

struct Product {
  OwnedTensor x;
  OwnedTensor weight;
};

Product make_product(DType dtype, int64_t rows, Shape shape, uint32_t seed) {
  std::mt19937 random(seed);
  auto x = OwnedTensor::random(dtype, {rows, shape.depth}, random);
  return {std::move(x), OwnedTensor::random(dtype, {shape.columns, shape.depth}, random)};
}

// Σ_k x·w and Σ_k |x·w| in float64.
struct Sums {
  std::vector<double> value;
  std::vector<double> magnitude;
};

Sums sums_of(const Product& product) {
  const Tensor x = product.x.view();
  const Tensor w = product.weight.view();
  const int64_t depth = x.shape[1];
  Sums sums;
  for (int64_t m = 0; m < x.shape[0]; ++m) {
    for (int64_t n = 0; n < w.shape[0]; ++n) {
      double value = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double term = double{element(x, m * depth + k)} * element(w, n * depth + k);
        value += term;
        magnitude += std::abs(term);
      }
      sums.value.push_back(value);
      sums.magnitude.push_back(magnitude);
    }
  }
  return sums;
}

// Rounding of a float32 sum of `depth` terms: a random walk of its steps, with a factor of 4 for the worst of
// many elements, relative to the sum of magnitudes; then out's own rounding.
double product_tolerance(const Sums& sums, int64_t index, int64_t depth, DType out) {
  const auto i = static_cast<size_t>(index);
  const double steps = 4 * std::sqrt(static_cast<double>(depth)) + 4;
  const double own = out == DType::kBFloat16 ? 1.01 * kBFloat16Epsilon * std::abs(sums.value[i]) : 0;
  return steps * kFloatEpsilon * sums.magnitude[i] + own;
}

class Matmul : public testing::TestWithParam<Variant> {
 protected:
  OwnedTensor run(const Product& product, const PackedWeight& weight, DType out_dtype) {
    OwnedTensor out(out_dtype, {product.x.view().shape[0], weight.rows()});
    backend_->matmul({product.x.view(), &weight, out.view(), false});
    return out;
  }
  std::unique_ptr<Backend> backend_ = make(GetParam());
  DType dtype_ = GetParam().options.dtype;
};

TEST_P(Matmul, IsTheSumInEveryShapeAndOutputType) {
  for (const Shape& shape : kShapes) {
    if (shape.columns * shape.depth > 400000) continue;  // float64 truth by plain loops
    for (int64_t rows : {1, 5, 19}) {
      const Product product = make_product(dtype_, rows, shape, 11);
      const Sums sums = sums_of(product);
      const auto weight = pack(*backend_, product.weight);
      EXPECT_EQ(weight->rows(), shape.columns);
      EXPECT_EQ(weight->columns(), shape.depth);
      for (DType out_dtype : {DType::kFloat32, dtype_}) {
        const OwnedTensor out = run(product, *weight, out_dtype);
        const auto truth = [&](int64_t i) { return sums.value[static_cast<size_t>(i)]; };
        const auto tolerance = [&](int64_t i) { return product_tolerance(sums, i, shape.depth, out_dtype); };
        EXPECT_EQ(first_difference(out, truth, tolerance), std::nullopt)
            << shape.columns << "x" << shape.depth;
      }
    }
  }
}

TEST_P(Matmul, AccumulateAddsToWhatWasThere) {
  const Shape shape{100, 72};
  const Product product = make_product(dtype_, 9, shape, 5);
  const Sums sums = sums_of(product);
  const auto weight = pack(*backend_, product.weight);
  std::mt19937 random(6);
  const auto before = OwnedTensor::random(DType::kFloat32, {9, 100}, random);
  OwnedTensor out = before;
  backend_->matmul({product.x.view(), weight.get(), out.view(), true});
  const auto truth = [&](int64_t i) { return sums.value[static_cast<size_t>(i)] + before.at(i); };
  const auto tolerance = [&](int64_t i) {
    return product_tolerance(sums, i, shape.depth, DType::kFloat32) + 2 * kFloatEpsilon * std::abs(truth(i));
  };
  EXPECT_EQ(first_difference(out, truth, tolerance), std::nullopt);
}

TEST_P(Matmul, ABiasIsAddedBeforeTheOneRounding) {
  for (const Shape& shape : {Shape{100, 72}, Shape{512, 256}, Shape{131, 259}}) {
    for (int64_t rows : {1, 5, 19}) {
      const Product product = make_product(dtype_, rows, shape, 5);
      std::mt19937 random(6);
      // Biases as large as the sums, so that some cancel: there a rounding before the bias would show.
      const auto bias = OwnedTensor::random(DType::kFloat32, {shape.columns}, random, 9.0f);
      const auto before = OwnedTensor::random(DType::kFloat32, {rows, shape.columns}, random);
      const auto weight = pack(*backend_, product.weight);
      Sums sums = sums_of(product);
      for (int64_t i = 0; i < rows * shape.columns; ++i) {
        sums.value[static_cast<size_t>(i)] += bias.at(i % shape.columns);
        sums.magnitude[static_cast<size_t>(i)] += std::abs(bias.at(i % shape.columns));
      }
      for (DType out_dtype : {DType::kFloat32, dtype_}) {
        OwnedTensor out(out_dtype, {rows, shape.columns});
        backend_->matmul({product.x.view(), weight.get(), out.view(), false, bias.view()});
        const auto truth = [&](int64_t i) { return sums.value[static_cast<size_t>(i)]; };
        const auto tolerance = [&](int64_t i) { return product_tolerance(sums, i, shape.depth, out_dtype); };
        EXPECT_EQ(first_difference(out, truth, tolerance), std::nullopt) << rows << " " << shape.columns;
      }
      OwnedTensor added = before;
      backend_->matmul({product.x.view(), weight.get(), added.view(), true, bias.view()});
      const auto truth = [&](int64_t i) { return sums.value[static_cast<size_t>(i)] + before.at(i); };
      const auto tolerance = [&](int64_t i) {
        return product_tolerance(sums, i, shape.depth, DType::kFloat32) +
               2 * kFloatEpsilon * (std::abs(truth(i)) + sums.magnitude[static_cast<size_t>(i)]);
      };
      EXPECT_EQ(first_difference(added, truth, tolerance), std::nullopt) << rows << " " << shape.columns;
    }
  }
}

TEST_P(Matmul, RowsWithABiasDoNotDependOnTheBatch) {
  const Product product = make_product(dtype_, 40, {256, 72}, 23);
  const auto weight = pack(*backend_, product.weight);
  std::mt19937 random(6);
  const auto bias = OwnedTensor::random(DType::kFloat32, {256}, random);
  OwnedTensor whole(dtype_, {40, 256});
  backend_->matmul({product.x.view(), weight.get(), whole.view(), false, bias.view()});
  for (int64_t m : {1, 2, 3, 7, 16, 17, 33}) {
    OwnedTensor out(dtype_, {m, 256});
    backend_->matmul({product.x.rows(40 - m, m), weight.get(), out.view(), false, bias.view()});
    ASSERT_TRUE(same_bits(out.view(), whole.rows(40 - m, m))) << m;
  }
}

TEST_P(Matmul, ABrokenWeightIsNoticed) {
  Product product = make_product(dtype_, 3, {100, 72}, 5);
  const Sums sums = sums_of(product);
  // One weight of 7200 off by a hundredth of its deviation (in bfloat16: by its least difference).
  const float step = dtype_ == DType::kBFloat16 ? 0.02f : 0.01f;
  set_element(product.weight.view(), 31 * 72 + 5, static_cast<float>(product.weight.at(31 * 72 + 5)) + step);
  const auto weight = pack(*backend_, product.weight);
  const OwnedTensor out = run(product, *weight, DType::kFloat32);
  const auto truth = [&](int64_t i) { return sums.value[static_cast<size_t>(i)]; };
  const auto tolerance = [&](int64_t i) { return product_tolerance(sums, i, 72, DType::kFloat32); };
  const auto difference = first_difference(out, truth, tolerance);
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->find("element 31 of"), std::string::npos) << *difference;
}

TEST_P(Matmul, ARowsBitsDoNotDependOnTheBatch) {
  // oneDNN compiles a kernel for each row count: all of them. Pairs are cheap enough for the same. Plain
  // loops and other panels only know whole tiles and rests.
  const std::string description = backend_->description();
  const bool every = !kSanitized && (description.find("onednn") != std::string::npos ||
                                     description.find("pairs") != std::string::npos ||
                                     description.find("tiles") != std::string::npos);
  const int64_t rows_max = every ? 512 : GetParam().name == "ref" ? 8 : 40;
  std::vector<int64_t> batches{1, 2, 3, 5, 6, 7, 16, 17, 33, 40};
  if (every) {
    for (int64_t m = 4; m <= 64; ++m) batches.push_back(m);
    for (int64_t m : {100, 127, 200, 333, 511, 512}) batches.push_back(m);
  }
  for (const Shape& shape : kShapes) {
    if ((GetParam().name == "ref" || kSanitized) && shape.columns * shape.depth > 400000) continue;
    const Product product = make_product(dtype_, rows_max, shape, 17);
    const auto weight = pack(*backend_, product.weight);
    const OwnedTensor whole = run(product, *weight, DType::kFloat32);
    for (int64_t m : batches) {
      if (m > rows_max) continue;
      // The last rows, so that a row also changes its place in the batch.
      const int64_t first = rows_max - m;
      OwnedTensor out(DType::kFloat32, {m, shape.columns});
      backend_->matmul({product.x.rows(first, m), weight.get(), out.view(), false});
      ASSERT_TRUE(same_bits(out.view(), whole.rows(first, m)))
          << m << " rows of " << shape.columns << "x" << shape.depth;
    }
  }
}

TEST_P(Matmul, AccumulatingRowsDoNotDependOnTheBatchEither) {
  const Product product = make_product(dtype_, 70, {256, 704}, 23);
  const auto weight = pack(*backend_, product.weight);
  std::mt19937 random(6);
  const auto before = OwnedTensor::random(DType::kFloat32, {70, 256}, random);
  OwnedTensor whole = before;
  backend_->matmul({product.x.view(), weight.get(), whole.view(), true});
  for (int64_t m : {1, 2, 3, 7, 16, 17, 33, 69}) {
    OwnedTensor out = before;
    backend_->matmul({product.x.rows(0, m), weight.get(), out.rows(0, m), true});
    ASSERT_TRUE(same_bits(out.rows(0, m), whole.rows(0, m))) << m;
    ASSERT_TRUE(same_bits(out.rows(m, 70 - m), before.rows(m, 70 - m))) << "rows past the batch were written";
  }
}

// In parts, whole, with rows few or many: the same bits as the three ops.
TEST_P(Matmul, AGatedMlpHasTheBitsOfItsThreeProducts) {
  for (const auto& [hidden, width] : {std::pair<int64_t, int64_t>{96, 352}, {256, 3200}, {131, 77}}) {
    if ((GetParam().name == "ref" || kSanitized) && width > 1000) continue;
    const int64_t rows_max = GetParam().name == "ref" || kSanitized ? 40 : 530;
    const Product product = make_product(dtype_, rows_max, {2 * width, hidden}, 3);
    std::mt19937 random(4);
    const auto gate_up = pack(*backend_, product.weight);
    const auto down = pack(*backend_, OwnedTensor::random(dtype_, {hidden, width}, random, 0.1f));
    const auto up_bias = OwnedTensor::random(DType::kFloat32, {2 * width}, random);
    const auto down_bias = OwnedTensor::random(DType::kFloat32, {hidden}, random);
    const auto before = OwnedTensor::random(DType::kFloat32, {rows_max, hidden}, random);
    OwnedTensor mixed(dtype_, {rows_max, 2 * width});
    OwnedTensor gated(dtype_, {rows_max, width});
    for (const bool biased : {false, true}) {
      const Tensor biases[2] = {biased ? up_bias.view() : Tensor{}, biased ? down_bias.view() : Tensor{}};
      OwnedTensor expected = before;
      const Tensor x = product.x.view();
      backend_->matmul({.x = x, .weight = gate_up.get(), .out = mixed.view(), .bias = biases[0]});
      backend_->silu_mul({.gate_up = mixed.view(), .out = gated.view()});
      backend_->matmul({.x = gated.view(),
                        .weight = down.get(),
                        .out = expected.view(),
                        .accumulate = true,
                        .bias = biases[1]});
      for (int64_t m : {1, 2, 33, 40, 64, 500, 530}) {
        if (m > rows_max) continue;
        OwnedTensor sum = before;
        backend_->gated_mlp({.x = product.x.rows(0, m),
                             .gate_up = gate_up.get(),
                             .down = down.get(),
                             .sum = sum.rows(0, m),
                             .mixed = mixed.rows(0, m),
                             .gated = gated.rows(0, m),
                             .gate_up_bias = biases[0],
                             .down_bias = biases[1]});
        ASSERT_TRUE(same_bits(sum.rows(0, m), expected.rows(0, m))) << m << " rows, width " << width;
        if (m == rows_max) continue;
        ASSERT_TRUE(same_bits(sum.rows(m, rows_max - m), before.rows(m, rows_max - m)));
      }
    }
  }
}

TEST_P(Matmul, ThreadsChangeNoBit) {
  if (GetParam().name == "ref") return;
  for (const Shape& shape : {Shape{1408, 256}, Shape{4096, 256}, Shape{131, 259}, Shape{192, 5632}}) {
    const Product product = make_product(dtype_, 77, shape, 29);
    const auto weight = pack(*backend_, product.weight);
    for (DType out_dtype : {DType::kFloat32, dtype_}) {
      const OwnedTensor expected = run(product, *weight, out_dtype);
      for (int threads : {1, 3, 8}) {
        Variant variant = GetParam();
        variant.options.threads = threads;
        const auto other = make(variant);
        const auto other_weight = pack(*other, product.weight);
        OwnedTensor out(out_dtype, {77, shape.columns});
        other->matmul({product.x.view(), other_weight.get(), out.view(), false});
        ASSERT_TRUE(out == expected) << threads << " threads, " << shape.columns << "x" << shape.depth;
      }
    }
  }
}

TEST_P(Matmul, EveryCheckpointTypePacksToTheSame) {
  // Small integers are exact in all three types. One byte off alignment, as in a mapped file.
  const int64_t outs = 70;
  const int64_t ins = 40;
  std::vector<OwnedTensor> results;
  const Product product = make_product(dtype_, 3, {outs, ins}, 31);
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    OwnedTensor aligned(dtype, {outs, ins});
    for (int64_t i = 0; i < outs * ins; ++i) {
      const auto power = static_cast<int>(i % 5);  // 1, 2, 4, 8, 16
      if (dtype == DType::kFloat16) {
        aligned.view().as<uint16_t>()[i] = static_cast<uint16_t>((15 + power) << 10);
      } else {
        set_element(aligned.view(), i, static_cast<float>(1 << power));
      }
    }
    std::vector<char> shifted(aligned.view().bytes() + 1);
    std::memcpy(shifted.data() + 1, aligned.view().data, aligned.view().bytes());
    auto weight = backend_->pack(Tensor::make(shifted.data() + 1, dtype, {outs, ins}));
    ASSERT_TRUE(weight.ok()) << weight.status();
    results.push_back(run(product, **weight, DType::kFloat32));
  }
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_TRUE(results[0] == results[2]);
}

TEST_P(Matmul, RefusesAWeightItCannotRead) {
  std::vector<int32_t> ids(4);
  const auto packed = backend_->pack(Tensor::make(ids.data(), DType::kInt32, {2, 2}));
  EXPECT_EQ(packed.status().message(),
            "a weight must be (N, K) in float32, bfloat16 or float16, got [2, 2] int32");
}

INSTANTIATE_TEST_SUITE_P(Backends, Matmul, testing::ValuesIn(all_variants()), variant_label);

TEST(ProductPlan, SlicesCoverTheColumnsInMultiplesOf64) {
  for (int64_t columns : {1, 63, 64, 65, 256, 1408, 4096, 151936}) {
    for (int threads : {1, 2, 3, 16, 64}) {
      int64_t next = 0;
      for (const cpu::Range& slice : cpu::column_slices(columns, threads)) {
        EXPECT_EQ(slice.begin, next);
        EXPECT_EQ(slice.begin % 64, 0);
        EXPECT_GT(slice.count, 0);
        next += slice.count;
      }
      EXPECT_EQ(next, columns);
    }
  }
  EXPECT_EQ(cpu::column_slices(256, 2).size(), 2u);
  EXPECT_EQ(cpu::column_slices(4096, 2).size(), 8u);
}

TEST(ProductPlan, ChunksCoverTheRowsWithFewSizes) {
  std::vector<cpu::Range> chunks;
  cpu::row_chunks(37, 512, chunks);
  EXPECT_EQ(chunks, (std::vector<cpu::Range>{{0, 32}, {32, 5}}));
  std::vector<int64_t> sizes;
  for (int64_t rows = 1; rows <= 2000; ++rows) {
    cpu::row_chunks(rows, 512, chunks);
    int64_t next = 0;
    for (const cpu::Range& chunk : chunks) {
      EXPECT_EQ(chunk.begin, next);
      next += chunk.count;
      if (std::find(sizes.begin(), sizes.end(), chunk.count) == sizes.end()) sizes.push_back(chunk.count);
    }
    EXPECT_EQ(next, rows);
  }
  EXPECT_LE(sizes.size(), 27u);
}

TEST(ProductPlan, TileItemsCoverPanelsRowsAndDepthOnce) {
  for (int64_t panels : {1, 28, 304}) {
    for (int threads : {1, 2, 3, 64}) {
      for (int64_t rows : {1, 31, 32, 33, 512, 513, 520, 2000}) {
        for (int64_t steps : {1, 28, 152, 600}) {
          const cpu::TileCut cut = cpu::cut_tiles(rows, panels, steps, threads);
          int64_t next_row = 0;
          for (int64_t chunk = 0; chunk < cut.row_chunks; ++chunk) {
            const cpu::Range here = cut.rows_of(chunk);
            EXPECT_EQ(here.begin, next_row);
            EXPECT_EQ(here.begin % 32, 0);
            EXPECT_GT(here.count, 0);
            next_row += here.count;
            int64_t covered = 0;
            for (int64_t item = 0; item < cut.items(); ++item)
              covered += cut.panels_of(item).count * cut.blocks_of(item, here).count;
            EXPECT_EQ(covered, panels * ((here.count + 31) / 32));
          }
          EXPECT_EQ(next_row, rows);
          int64_t next_step = 0;
          for (int64_t part = 0; part < cut.depth_parts; ++part) {
            const cpu::Range here = cut.steps_of(part);
            EXPECT_EQ(here.begin, next_step);
            EXPECT_GT(here.count, 0);
            EXPECT_LE(here.count, cut.steps_max());
            next_step += here.count;
          }
          EXPECT_EQ(next_step, steps);
        }
      }
    }
  }
  EXPECT_EQ(cpu::cut_tiles(0, 5, 3, 2).items(), 0);
  EXPECT_EQ(cpu::cut_tiles(512, 28, 28, 1).depth_parts, 1);   // 896 wide: x fits the cache whole
  EXPECT_EQ(cpu::cut_tiles(512, 28, 152, 1).depth_parts, 4);  // 4864 wide: in quarters
}

TEST(ProductPlan, PanelItemsCoverPanelsAndRowsOnceWithWorkForEveryThread) {
  for (int64_t panels : {1, 2, 14, 18, 152, 2374}) {
    for (int threads : {1, 2, 3, 16, 64}) {
      for (int64_t rows : {1, 7, 32, 33, 100, 512, 2000}) {
        const cpu::PanelCut cut = cpu::cut_panels(panels, rows, threads);
        int64_t next = 0;
        for (int64_t run = 0; run < cut.runs; ++run) {
          const cpu::Range here = cut.panels_of(run * cut.chunks);
          EXPECT_EQ(here.begin, next);
          EXPECT_GT(here.count, 0);
          next += here.count;
        }
        EXPECT_EQ(next, panels);
        EXPECT_GE(cut.chunks * cut.rows_per_chunk, rows);
        EXPECT_LT((cut.chunks - 1) * cut.rows_per_chunk, rows);
        EXPECT_LE(cut.rows_per_chunk, cpu::kPanelChunkRows);
        const bool enough = cut.items() >= std::min<int64_t>(threads, panels);
        EXPECT_TRUE(enough) << panels << " panels, " << rows << " rows, " << threads << " threads";
      }
    }
  }
  EXPECT_EQ(cpu::cut_panels(14, 1, 2).items(), 8);    // an even number: the threads end together
  EXPECT_EQ(cpu::cut_panels(2, 512, 16).chunks, 22);  // panels alone would leave fourteen threads idle
  EXPECT_EQ(cpu::cut_panels(0, 5, 2).items(), 0);
}

}  // namespace troupe::matmul_test
