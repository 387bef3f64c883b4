// Every op of a device's backend by itself, in bfloat16 at the shapes of 7–8B models, beside its roofline:
// the bytes it must move at the rate of a device copy, or its products at the rate of a large one, whichever
// takes longer. Both rates are measured first, in the same run, by the backend's own copy_blocks and matmul.
//
//   build/bin/device_bench [DEVICE [small]]     DEVICE: a backend's name (kernels.h; cuda), or a module's
//   path
//
// small: tiny shapes, to see that it works where nothing is fast. Prints a table as it goes.
// tests/gpu/bench.sh ops runs it.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backends.h"
#include "kernels/kernels.h"

namespace troupe {
namespace {

constexpr DType kActivation = DType::kBFloat16;
constexpr int64_t kActivationBytes = 2;
constexpr int kBlockSize = 16;

template <typename T>
T value_or_fail(StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "device_bench: %s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

// The least that a call must do.
struct Work {
  double bytes = 0;
  double flops = 0;
};

// On the same device.
struct Others {
  std::unique_ptr<Backend> kernels;  // with the other kernels for attention, and Hopper's for products
  std::unique_ptr<Backend> library;  // with the library's products
  std::unique_ptr<Backend> in_turn;  // with warpgroups that take turns
};

class Bench {
 public:
  Bench(std::unique_ptr<Backend> backend, Others others, bool small)
      : backend_(std::move(backend)), others_(std::move(others)), asked_(backend_.get()), small_(small) {
    waiter_ = value_or_fail(backend_->allocate(64));
    std::printf("%s\n", backend_->description().c_str());
  }

  void run() {
    measure_ceilings();
    std::printf("copy %.3f TB/s, product %.0f TFLOP/s\n\n", copy_rate_ / 1e12, product_rate_ / 1e12);
    std::printf("| op | shape | µs | floor µs | share of floor | |\n| --- | --- | --- | --- | --- | --- |\n");
    rows();
    samples();
    products();
    attentions();
    cascades();
  }

 private:
  int64_t pick(int64_t full, int64_t small) const { return small_ ? small : full; }

  Tensor tensor(DType dtype, std::initializer_list<int64_t> shape) {
    Tensor t = Tensor::make(nullptr, dtype, shape);
    buffers_.push_back(value_or_fail(backend_->allocate(t.bytes())));
    t.data = buffers_.back()->data();
    if (dtype != DType::kInt32) fill(t);
    return t;
  }
  // Random numbers: products of zeros are faster than real ones.
  void fill(const Tensor& t) {
    constexpr int64_t kPeriod = (1 << 20) + 7;
    std::vector<char> host(t.bytes());
    const Tensor values = Tensor::make(host.data(), t.dtype, {t.elements()});
    std::normal_distribution<float> normal;
    const int64_t period = std::min(kPeriod, t.elements());
    for (int64_t i = 0; i < period; ++i) set_element(values, i, normal(random_));
    const size_t filled = static_cast<size_t>(period) * dtype_size(t.dtype);
    for (size_t at = filled; at < host.size(); at += filled) {
      std::copy_n(host.data(), std::min(filled, host.size() - at), host.data() + at);
    }
    backend_->upload(t.data, host.data(), host.size());
  }

  // Median seconds of a call, of several groups behind one another; the first group is not counted.
  double seconds_of(const std::function<void()>& op) {
    const int calls = small_ ? 1 : 20;
    std::vector<double> groups;
    for (int g = 0; g < (small_ ? 2 : 6); ++g) {
      wait();
      const auto start = std::chrono::steady_clock::now();
      {
        // As a model's layers ask: what is the same for all of a step is planned and sent once.
        const StepScope scope(*asked_, StepKind::kMixed);
        for (int i = 0; i < calls; ++i) op();
      }
      wait();
      groups.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                       calls);
    }
    std::nth_element(groups.begin() + 1,
                     groups.begin() + 1 + static_cast<std::ptrdiff_t>(groups.size() - 1) / 2, groups.end());
    return groups[1 + (groups.size() - 1) / 2];
  }
  void wait() {
    char byte = 0;
    asked_->download(&byte, waiter_->data(), 1);
  }

  void row(const char* op, const std::string& shape, const Work& work, const std::function<void()>& call,
           const std::string& more = "") {
    const double seconds = seconds_of(call);
    const double floor = std::max(work.bytes / copy_rate_, work.flops / product_rate_);
    std::printf("| %s | %s | %.1f | %.1f | %.2f | %.2f TB/s, %.0f TFLOP/s%s |\n", op, shape.c_str(),
                seconds * 1e6, floor * 1e6, floor / seconds, work.bytes / seconds / 1e12,
                work.flops / seconds / 1e12, more.c_str());
    std::fflush(stdout);
    last_seconds_ = seconds;
  }

  void measure_ceilings() {
    const auto blocks = static_cast<int32_t>(pick(1024, 8));
    const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 64, .block_size = 4096};  // 1 MiB
    const Tensor memory = tensor(kActivation, {2 * blocks * layout.block_elements()});
    backend_->bind_kv(layout, memory.data, 2 * blocks);
    std::vector<BlockCopy> copies;
    for (int32_t i = 0; i < blocks; ++i) copies.push_back({i, blocks + i});
    copy_rate_ = static_cast<double>(memory.bytes()) / seconds_of([&] { backend_->copy_blocks(copies); });
    const int64_t n = pick(8192, 128);
    const Tensor x = tensor(kActivation, {n, n}), out = tensor(kActivation, {n, n});
    const auto weight = packed(n, n);
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    product_rate_ =
        flops / seconds_of([&] { backend_->matmul({.x = x, .weight = weight.get(), .out = out}); });
    buffers_.clear();
  }

  std::unique_ptr<PackedWeight> packed(int64_t rows, int64_t columns) {
    std::vector<BFloat16> host(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < host.size(); ++i)
      host[i] = to_bfloat16(static_cast<float>(i * 7919 % 2039) / 1000 - 1);
    return value_or_fail(backend_->pack(Tensor::make(host.data(), DType::kBFloat16, {rows, columns})));
  }

  void rows() {
    const int64_t hidden = pick(4096, 128), width = pick(14336, 256);
    for (const int64_t tokens : {int64_t{1}, pick(2048, 9)}) {
      const std::string shape = std::to_string(tokens) + " × ";
      const auto t = static_cast<double>(tokens);
      const Tensor x = tensor(DType::kFloat32, {tokens, hidden}), norm = tensor(DType::kFloat32, {hidden});
      const Tensor out = tensor(kActivation, {tokens, hidden});
      row("rms_norm", shape + std::to_string(hidden), {t * static_cast<double>(hidden) * 6}, [&] {
        backend_->rms_norm({x, norm, 1e-5f, out});
      });
      const Tensor mixed = tensor(kActivation, {tokens, 2 * width}),
                   gated = tensor(kActivation, {tokens, width});
      row("silu_mul", shape + std::to_string(width), {t * static_cast<double>(width) * 6}, [&] {
        backend_->silu_mul({mixed, gated});
      });
      const Tensor table = tensor(kActivation, {pick(32000, 64), hidden});
      std::vector<int32_t> ids(static_cast<size_t>(tokens));
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(table.shape[0]));
      row("embed", shape + std::to_string(hidden), {t * static_cast<double>(hidden) * 6}, [&] {
        backend_->embed({ids, table, x});
      });
      rope(tokens);
      buffers_.clear();
    }
  }

  void rope(int64_t tokens) {
    const int64_t heads = pick(32, 4), kv_heads = pick(8, 2), head_dim = 128;
    const KvLayout layout{.layers = 1,
                          .kv_heads = static_cast<int>(kv_heads),
                          .head_dim = static_cast<int>(head_dim),
                          .block_size = kBlockSize};
    const int64_t blocks = (tokens + kBlockSize - 1) / kBlockSize;
    const Tensor memory = tensor(kActivation, {blocks * layout.block_elements()});
    backend_->bind_kv(layout, memory.data, blocks);
    const Tensor qkv = tensor(kActivation, {tokens, (heads + 2 * kv_heads) * head_dim});
    const Tensor q = tensor(kActivation, {tokens, heads, head_dim});
    const Tensor cos_sin = tensor(DType::kFloat32, {tokens, head_dim});
    std::vector<int32_t> places(static_cast<size_t>(tokens));
    std::iota(places.begin(), places.end(), 0);
    row("rope_kv", std::to_string(tokens) + " × " + std::to_string(heads) + "/" + std::to_string(kv_heads),
        {2.0 * static_cast<double>(qkv.bytes()) + static_cast<double>(cos_sin.bytes())}, [&] {
          backend_->rope_kv(
              {.qkv = qkv, .cos_sin = cos_sin, .positions = places, .slots = places, .q_out = q});
        });
  }

  // The floor is one reading of the logits.
  // As a language model's: most tokens far below the best, some dozens that may be drawn.
  void fill_logits(const Tensor& logits) {
    constexpr int kLikely = 60;
    constexpr double kBest = 20.0, kStep = 0.15;
    std::vector<char> host(logits.bytes());
    const Tensor values = Tensor::make(host.data(), logits.dtype, {logits.shape[0], logits.shape[1]});
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (int64_t i = 0; i < values.elements(); ++i) set_element(values, i, normal(random_));
    for (int64_t row = 0; row < values.shape[0]; ++row) {
      for (int n = 0; n < kLikely; ++n) {
        const auto id = static_cast<int64_t>(random_() % static_cast<uint64_t>(values.shape[1]));
        set_element(values, row * values.shape[1] + id, static_cast<float>(kBest - kStep * n));
      }
    }
    backend_->upload(logits.data, host.data(), host.size());
  }

  void samples() {
    struct Draw {
      const char* what;
      DrawParams params;
    };
    const Draw draws[] = {{"greedy", {.temperature = 0}},
                          {"plain", {}},
                          {"top_p .9", {.top_p = 0.9f}},
                          {"top_k 40", {.top_k = 40}},
                          {"top_k 40, top_p .9", {.top_k = 40, .top_p = 0.9f}},
                          {"min_p .05", {.min_p = 0.05f}}};
    const int64_t vocab = pick(128256, 3000);
    for (const int64_t requests : {int64_t{1}, pick(128, 3)}) {
      const Tensor logits = tensor(DType::kFloat32, {requests, vocab});
      fill_logits(logits);
      const Tensor out = tensor(DType::kInt32, {requests});
      for (const Draw& draw : draws) {
        const std::vector<SampleRow> rows(static_cast<size_t>(requests), {.draw = draw.params});
        row("sample",
            std::string(draw.what) + ", " + std::to_string(requests) + " × " + std::to_string(vocab),
            {static_cast<double>(logits.bytes())}, [&] {
              backend_->sample({logits, rows, out});
            });
      }
      buffers_.clear();
    }
  }

  void products() {
    struct Shape {
      const char* what;
      int64_t features, depth;
    };
    const Shape shapes[] = {
        {"qkv of 8B", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
    for (const Shape& s : shapes) {
      const int64_t features = pick(s.features, s.features / 256), depth = pick(s.depth, s.depth / 32);
      // In turns, and together larger than any cache: a model's layers come by once a step.
      std::vector<std::unique_ptr<PackedWeight>> weights;
      do {
        weights.push_back(packed(features, depth));
      } while (!small_ && static_cast<int64_t>(weights.size()) * weights[0]->bytes() < int64_t{256} << 20);
      size_t turn = 0;
      for (const int64_t tokens :
           {int64_t{1}, int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}, pick(256, 70), pick(2048, 90)}) {
        const Tensor x = tensor(kActivation, {tokens, depth}), out = tensor(kActivation, {tokens, features});
        const auto n = static_cast<double>(features), k = static_cast<double>(depth),
                   t = static_cast<double>(tokens);
        const std::string shape = std::string(s.what) + ", " + std::to_string(tokens) + " rows";
        const Work work{2 * (n * k + t * (n + k)), 2 * n * k * t};
        const auto multiply = [&] {
          asked_->matmul({.x = x, .weight = weights[turn++ % weights.size()].get(), .out = out});
        };
        row("matmul", shape, work, multiply);
        // Batches for which three kernels compete; by more than 32 rows the library's is the first row.
        const bool swaps = is_hopper() && tokens > 8 && tokens <= 64;
        if (swaps) row_by(*others_.kernels, "matmul, swap AB", shape, work, multiply);
        if (swaps && tokens <= 32) row_by(*others_.library, "matmul, library", shape, work, multiply);
        buffers_.clear();
      }
    }
    mlps();
  }

  bool is_hopper() const { return backend_->description().find("sm_90") != std::string::npos; }
  void row_by(Backend& other, const char* op, const std::string& shape, const Work& work,
              const std::function<void()>& call) {
    asked_ = &other;
    row(op, shape, work, call);
    asked_ = backend_.get();
  }

  // A norm, and a norm with both products of an MLP: in fewer launches, and one by one.
  void mlps() {
    const int64_t hidden = pick(4096, 128), width = pick(14336, 256);
    const auto gate_up = packed(2 * width, hidden), down = packed(hidden, width);  // larger than any cache
    for (const int64_t tokens : {int64_t{1}, int64_t{2}, int64_t{8}, int64_t{16}, int64_t{64}}) {
      const Tensor x = tensor(DType::kFloat32, {tokens, hidden}), scale = tensor(DType::kFloat32, {hidden});
      const Tensor normed = tensor(kActivation, {tokens, hidden}),
                   sum = tensor(DType::kFloat32, {tokens, hidden});
      const Tensor mixed = tensor(kActivation, {tokens, 2 * width}),
                   gated = tensor(kActivation, {tokens, width});
      const RmsNormParams norm{x, scale, 1e-5f, normed};
      const GatedMlpParams mlp{normed, gate_up.get(), down.get(), sum, mixed, gated};
      const double count = static_cast<double>(hidden) * static_cast<double>(width);
      const Work work{6 * count, 6 * count * static_cast<double>(tokens)};
      const std::string shape = "of 8B, " + std::to_string(tokens) + " rows";
      const auto at_once = [&] { asked_->normed_gated_mlp(norm, mlp); };
      row("normed mlp", shape, work, at_once);
      if (is_hopper() && tokens > 8) row_by(*others_.kernels, "normed mlp, swap AB", shape, work, at_once);
      row("normed mlp, by ops", shape, work, [&] {
        backend_->rms_norm(norm);
        backend_->matmul({.x = normed, .weight = mlp.gate_up, .out = mixed});
        backend_->silu_mul({mixed, gated});
        backend_->matmul({.x = gated, .weight = mlp.down, .out = sum, .accumulate = true});
      });
      buffers_.clear();
    }
  }

  // One layer's attention of `requests` alike, whose first `shared` keys lie in the same blocks for each of
  // `personas`.
  struct Step {
    int heads, kv_heads, head_dim, requests, keys, queries, shared, personas;
    int block_size = kBlockSize;
  };

  double attend(const char* op, const Step& s) {
    const KvLayout layout{
        .layers = 1, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .block_size = s.block_size};
    const int blocks_each = (s.keys + s.block_size - 1) / s.block_size;
    const int shared_blocks = s.shared / s.block_size;
    const int own_blocks = blocks_each - shared_blocks;
    const int64_t blocks = int64_t{s.personas} * shared_blocks + int64_t{s.requests} * own_blocks;
    const Tensor memory = tensor(kActivation, {blocks * layout.block_elements()});
    backend_->bind_kv(layout, memory.data, blocks);
    std::vector<int32_t> order(static_cast<size_t>(blocks)), tables, starts{0}, contexts;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (int r = 0; r < s.requests; ++r) {
      const auto persona = order.begin() + static_cast<std::ptrdiff_t>(r % s.personas) * shared_blocks;
      const auto own = order.begin() + static_cast<std::ptrdiff_t>(s.personas) * shared_blocks +
                       static_cast<std::ptrdiff_t>(r) * own_blocks;
      tables.insert(tables.end(), persona, persona + shared_blocks);
      tables.insert(tables.end(), own, own + own_blocks);
      starts.push_back(starts.back() + s.queries);
      contexts.push_back(s.keys);
    }
    const int64_t tokens = starts.back();
    const Tensor q = tensor(kActivation, {tokens, s.heads, s.head_dim});
    const Tensor out = tensor(kActivation, {tokens, int64_t{s.heads} * s.head_dim});
    const double token_bytes = 2.0 * s.kv_heads * s.head_dim * kActivationBytes;
    const double keys_read = static_cast<double>(blocks) * s.block_size;  // once each
    const double pairs =
        static_cast<double>(s.requests) * s.queries * (s.keys - s.queries + (s.queries + 1) / 2.0);
    const Work work{keys_read * token_bytes + 2.0 * static_cast<double>(q.bytes()),
                    4.0 * pairs * s.heads * s.head_dim};
    const std::string shape =
        std::to_string(s.requests) + " × " + std::to_string(s.queries) + " at " + std::to_string(s.keys) +
        ", " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " × " +
        std::to_string(s.head_dim) +
        (s.shared > 0
             ? ", " + std::to_string(s.shared) + " shared, " + std::to_string(s.personas) + " personas"
             : "") +
        (s.block_size != kBlockSize ? ", blocks of " + std::to_string(s.block_size) : "");
    const auto ask = [&] {
      asked_->attention({.q = q,
                         .query_starts = starts,
                         .context_counts = contexts,
                         .block_tables = tables,
                         .block_table_stride = blocks_each,
                         .layer = 0,
                         .scale = 0.1f,
                         .out = out});
    };
    row(op, shape, work, ask);
    const char* const by_other = name_by_other(op, s.heads / s.kv_heads);
    if (by_other != nullptr) {
      others_.kernels->bind_kv(layout, memory.data, blocks);
      row_by(*others_.kernels, by_other, shape, work, ask);
    }
    if (std::string_view(op) == "prefill" && is_hopper()) {
      others_.in_turn->bind_kv(layout, memory.data, blocks);
      row_by(*others_.in_turn, "prefill, in turn", shape, work, ask);
    }
    buffers_.clear();
    return last_seconds_;
  }

  // Null where the other has no other kernel.
  const char* name_by_other(std::string_view op, int group_heads) const {
    if (op == "decode" && group_heads <= 4) return "decode, lanes";
    return op == "prefill" && is_hopper() ? "prefill, warpgroups" : nullptr;
  }

  void attentions() {
    for (const auto& [heads, kv_heads] : {std::pair(32, 32), std::pair(32, 8), std::pair(28, 4)}) {
      if (small_ && heads != 28) continue;
      attend("decode", {heads, kv_heads, 128, 1, static_cast<int>(pick(2048, 70)), 1, 0, 1});
      attend("decode", {heads, kv_heads, 128, static_cast<int>(pick(128, 3)),
                        static_cast<int>(pick(1024, 300)), 1, 0, 1});
      for (const int block_size : {kBlockSize, 64, 128}) {
        attend("prefill", {heads, kv_heads, 128, 1, static_cast<int>(pick(8192, 70)),
                           static_cast<int>(pick(8192, 70)), 0, 1, block_size});
      }
      attend("prefill", {heads, kv_heads, 128, 1, static_cast<int>(pick(2112, 90)),
                         static_cast<int>(pick(64, 20)), 0, 1});
    }
  }

  // Shared against each its own, the same lengths: what a cascade gains.
  void cascades() {
    const int requests = static_cast<int>(pick(128, 8));
    for (const auto& [heads, kv_heads] : {std::pair(32, 32), std::pair(32, 8)}) {
      if (small_ && kv_heads != 8) continue;
      for (const int shared : {static_cast<int>(pick(128, 128)), static_cast<int>(pick(2048, 256))}) {
        for (const int personas : {1, static_cast<int>(pick(8, 2)), requests}) {
          const int own = static_cast<int>(pick(256, 40));
          attend(personas == requests ? "decode" : "cascade",
                 {heads, kv_heads, 128, requests, shared + own, 1, shared, personas});
        }
      }
    }
  }

  std::unique_ptr<Backend> backend_;
  Others others_;
  Backend* asked_;  // one of them
  bool small_;
  std::mt19937 random_{1};
  std::unique_ptr<DeviceBuffer> waiter_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  double copy_rate_ = 1, product_rate_ = 1, last_seconds_ = 0;
};

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  const std::string_view how = argc > 2 ? argv[2] : "";
  if (argc > 3 || (argc > 2 && how != "small") || (argc > 1 && std::string_view(argv[1]).starts_with("-"))) {
    std::fprintf(stderr, "usage: device_bench [DEVICE [small]]\n");
    return 2;
  }
  const auto make = [&](const troupe::CudaOptions& cuda) {
    return troupe::value_or_fail(
        troupe::make_backend(argc > 1 ? argv[1] : "cuda", {.dtype = troupe::kActivation, .cuda = cuda}));
  };
  troupe::Others others{make({.decode = troupe::DecodeKernel::kLanes,
                              .prefill = troupe::PrefillKernel::kWarpgroups,
                              .products = troupe::ProductKernel::kSwapAb}),
                        make({.products = troupe::ProductKernel::kLibrary}),
                        make({.prefill = troupe::PrefillKernel::kWarpgroupsInTurn})};
  troupe::Bench(make({.decode = troupe::DecodeKernel::kTiles, .prefill = troupe::PrefillKernel::kTiles}),
                std::move(others), how == "small")
      .run();
}
