// How close the cpu backend comes to what the machine can do, as ratios within one run: everything compared
// is timed in turns, the best of each kept, so that a busy neighbour hits both sides alike.
//
//   build/bin/kernels_bench [THREADS] [--cpu-time]
//
// --cpu-time counts the process's CPU time over its threads instead of the wall's: on a machine whose cores
// are shared with other busy programs no piece of work runs undisturbed, and the wall shows the neighbours.
//
// - decode product (1 row): bytes of weights read a second, against a plain AVX-512 loop reading as many
// bytes
// - prefill product (512 rows): against oneDNN's own one large product on as many OpenMP threads
// - decode attention over a long context: bytes of KV a second, against the same read loop
// - prefill attention: against oneDNN's large product as well: the softmax is work that no product has
// Weights and KV are larger than the last-level cache.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/backends.h"
#include "kernels/host/openmp.h"
#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"
#include "tests/bench/read_loop.h"

namespace troupe {
namespace {

constexpr int kRounds = 7;
constexpr int64_t kWorkingSetBytes = int64_t{192} << 20;

struct BenchOptions {
  int threads = 1;
  bool cpu_time = false;
};

double now(const BenchOptions& options) {
  timespec time{};
  clock_gettime(options.cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  const double seconds = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  return options.cpu_time ? seconds / options.threads : seconds;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), threads_(options.threads), pool_(options.threads) {}

  void run() {
    auto backend = make_backend("cpu", {.dtype = DType::kBFloat16, .threads = threads_});
    if (!backend.ok()) {
      std::fprintf(stderr, "kernels_bench: %s\n", backend.status().ToString().c_str());
      std::exit(1);
    }
    backend_ = std::move(*backend);
    std::printf("%s; %s time\n", backend_->description().c_str(), options_.cpu_time ? "CPU" : "wall");
    read_memory_ = allocate(kWorkingSetBytes);
    for (const auto& [columns, depth] : {std::pair<int64_t, int64_t>{2048, 2048}, {1152, 896}, {9728, 896}}) {
      decode_product(columns, depth);
      prefill_product(columns, depth);
    }
    for (int heads_per_group : {1, 2, 4, 7}) decode_attention(heads_per_group, 64);
    for (int heads_per_group : {1, 4, 8}) decode_attention(heads_per_group, 128);
    for (int heads_per_group : {1, 2, 7}) prefill_attention(heads_per_group, 64);
    for (int heads_per_group : {1, 4}) prefill_attention(heads_per_group, 128);
  }

 private:
  // Best times of `kRounds` turns, in the order of `works`.
  std::vector<double> best_of(const std::vector<std::function<void()>>& works) const {
    std::vector<double> best(works.size(), 1e9);
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < works.size(); ++i) {
        const double start = now(options_);
        works[i]();
        best[i] = std::min(best[i], now(options_) - start);
      }
    }
    return best;
  }

  std::unique_ptr<DeviceBuffer> allocate(int64_t bytes) {
    auto buffer = backend_->allocate(static_cast<size_t>(bytes));
    if (!buffer.ok()) std::exit(1);
    return std::move(*buffer);
  }

  Tensor random_tensor(std::unique_ptr<DeviceBuffer>& storage, std::initializer_list<int64_t> shape) {
    Tensor tensor = Tensor::make(nullptr, DType::kBFloat16, shape);
    storage = allocate(static_cast<int64_t>(tensor.bytes()));
    tensor.data = storage->data();
    uint32_t state = 1;
    for (int64_t i = 0; i < tensor.elements();
         ++i) {  // ±[0.5, 1): bfloat16 bits with a random mantissa and sign
      state = state * 1664525 + 1013904223;
      tensor.as<uint16_t>()[i] = static_cast<uint16_t>(0x3f00 | (state >> 16 & 0x807f));
    }
    return tensor;
  }

  // Reads `bytes` of the working set with all threads, in pieces of 1 MiB.
  void read(int64_t bytes) {
    constexpr int64_t kPiece = int64_t{1} << 20;
    pool_.parallel_for(bytes / kPiece, [&](int64_t i, int) {
      bench::read(static_cast<const char*>(read_memory_->data()) + i * kPiece, kPiece);
    });
  }

  void decode_product(int64_t columns, int64_t depth) {
    const int64_t bytes = columns * depth * 2;
    std::unique_ptr<DeviceBuffer> x_storage, weight_storage;
    const Tensor x = random_tensor(x_storage, {1, depth});
    const Tensor weight = random_tensor(weight_storage, {columns, depth});
    std::vector<std::unique_ptr<PackedWeight>> weights;
    while (static_cast<int64_t>(weights.size()) * bytes < kWorkingSetBytes) {
      weights.push_back(std::move(*backend_->pack(weight)));
    }
    const auto out_storage = allocate(columns * 4);
    const Tensor out = Tensor::make(out_storage->data(), DType::kFloat32, {1, columns});
    const auto total = static_cast<int64_t>(weights.size()) * bytes;
    const auto best = best_of({[&] { read(kWorkingSetBytes); },
                               [&] {
                                 for (const auto& w : weights) backend_->matmul({x, w.get(), out, false});
                               }});
    report("decode product", columns, depth, static_cast<double>(total) / best[1] / 1e9,
           static_cast<double>(kWorkingSetBytes) / best[0] / 1e9, "GB/s", "read loop");
  }

  // oneDNN's own product (M, K) x (K, N) of bfloat16 into float32, on as many OpenMP threads.
  class Onednn {
   public:
    Onednn(const Tensor& x, const Tensor& weight, const Tensor& out, int threads)
        : threads_before_(omp_get_max_threads()), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
      omp_set_num_threads(threads);
      const int64_t rows = x.shape[0];
      const int64_t depth = x.shape[1];
      const int64_t columns = weight.shape[0];
      using dnnl::memory;
      const memory::desc src({rows, depth}, memory::data_type::bf16, memory::format_tag::ab);
      const memory::desc any({depth, columns}, memory::data_type::bf16, memory::format_tag::any);
      const memory::desc dst({rows, columns}, memory::data_type::f32, memory::format_tag::ab);
      const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(src, any, dst), engine_);
      primitive_ = dnnl::matmul(description);
      memory plain({{depth, columns}, memory::data_type::bf16, memory::format_tag::ba}, engine_, weight.data);
      memory own(description.weights_desc(), engine_);
      dnnl::reorder(plain, own).execute(stream_, plain, own);
      arguments_ = {{DNNL_ARG_SRC, memory(src, engine_, x.data)},
                    {DNNL_ARG_WEIGHTS, own},
                    {DNNL_ARG_DST, memory(dst, engine_, out.data)}};
    }
    ~Onednn() { omp_set_num_threads(threads_before_); }
    Onednn(const Onednn&) = delete;
    Onednn& operator=(const Onednn&) = delete;
    void multiply() { primitive_.execute(stream_, arguments_); }

   private:
    int threads_before_;
    dnnl::engine engine_;
    dnnl::stream stream_;
    dnnl::matmul primitive_;
    std::unordered_map<int, dnnl::memory> arguments_;
  };

  void prefill_product(int64_t columns, int64_t depth) {
    constexpr int64_t kRows = 512;
    std::unique_ptr<DeviceBuffer> x_storage, weight_storage;
    const Tensor x = random_tensor(x_storage, {kRows, depth});
    const Tensor weight = random_tensor(weight_storage, {columns, depth});
    const auto packed = std::move(*backend_->pack(weight));
    const auto out_storage = allocate(kRows * columns * 4);
    const Tensor out = Tensor::make(out_storage->data(), DType::kFloat32, {kRows, columns});
    Onednn onednn(x, weight, out, threads_);
    const auto best = best_of({[&] { onednn.multiply(); },
                               [&] {
                                 backend_->matmul({x, packed.get(), out, false});
                               }});
    const double flops = 2.0 * kRows * static_cast<double>(columns * depth);
    report("prefill product", columns, depth, flops / best[1] / 1e9, flops / best[0] / 1e9, "GFLOP/s",
           "oneDNN whole");
  }

  // KV memory of many blocks for 2 key/value heads, and a table over all of them in a shuffled order.
  struct Kv {
    std::unique_ptr<DeviceBuffer> storage;
    std::vector<int32_t> table;
    int64_t bytes;
  };
  Kv make_kv(int64_t keys, int head_dim) {
    const KvLayout layout{1, 2, head_dim, 16};
    Kv kv;
    const Tensor memory = random_tensor(kv.storage, {keys / 16 * layout.block_elements()});
    kv.table.resize(static_cast<size_t>(keys / 16));
    std::iota(kv.table.begin(), kv.table.end(), 0);
    std::shuffle(kv.table.begin(), kv.table.end(), std::mt19937(1));
    kv.bytes = static_cast<int64_t>(memory.bytes());
    backend_->bind_kv(layout, memory.data, keys / 16);
    return kv;
  }

  void decode_attention(int heads_per_group, int head_dim) {
    const int64_t requests = 2048 / head_dim;
    constexpr int64_t kKeys = 8192;  // each
    const Kv kv = make_kv(requests * kKeys, head_dim);
    const int64_t heads = 2 * heads_per_group;
    std::unique_ptr<DeviceBuffer> q_storage, out_storage;
    AttentionParams params;
    params.q = random_tensor(q_storage, {requests, heads, head_dim});
    params.out = random_tensor(out_storage, {requests, heads * head_dim});
    std::vector<int32_t> starts(static_cast<size_t>(requests) + 1);
    std::iota(starts.begin(), starts.end(), 0);
    const std::vector<int32_t> contexts(static_cast<size_t>(requests), kKeys);
    params.query_starts = starts;
    params.context_counts = contexts;
    params.block_tables = kv.table;
    params.block_table_stride = kKeys / 16;
    params.scale = 0.125f;
    const auto best = best_of({[&] { read(kv.bytes); }, [&] { backend_->attention(params); }});
    report(head_dim == 64 ? "decode attention of 64, group" : "decode attention of 128, group",
           heads_per_group, kKeys, static_cast<double>(kv.bytes) / best[1] / 1e9,
           static_cast<double>(kv.bytes) / best[0] / 1e9, "GB/s", "read loop");
  }

  // 512 queries, the last of 2048 keys, beside a product of 512 rows by 2048 x 2048.
  void prefill_attention(int heads_per_group, int head_dim) {
    constexpr int64_t kQueries = 512;
    constexpr int64_t kKeys = 2048;
    std::unique_ptr<DeviceBuffer> x_storage, weight_storage;
    const Tensor x = random_tensor(x_storage, {kQueries, kKeys});
    const Tensor weight = random_tensor(weight_storage, {kKeys, kKeys});
    const auto product_storage = allocate(kQueries * kKeys * 4);
    Onednn onednn(x, weight, Tensor::make(product_storage->data(), DType::kFloat32, {kQueries, kKeys}),
                  threads_);
    const Kv kv = make_kv(kKeys, head_dim);
    const int64_t heads = 2 * heads_per_group;
    std::unique_ptr<DeviceBuffer> q_storage, out_storage;
    AttentionParams params;
    params.q = random_tensor(q_storage, {kQueries, heads, head_dim});
    params.out = random_tensor(out_storage, {kQueries, heads * head_dim});
    const std::vector<int32_t> starts{0, kQueries};
    const std::vector<int32_t> contexts{kKeys};
    params.query_starts = starts;
    params.context_counts = contexts;
    params.block_tables = kv.table;
    params.block_table_stride = kKeys / 16;
    params.scale = 0.125f;
    const auto best = best_of({[&] { onednn.multiply(); }, [&] { backend_->attention(params); }});
    const double flops = 4.0 * static_cast<double>(head_dim * heads * kQueries * (kKeys - kQueries / 2));
    const double product_flops = 2.0 * kQueries * kKeys * kKeys;
    report(head_dim == 64 ? "prefill attention of 64, group" : "prefill attention of 128, group",
           heads_per_group, kKeys, flops / best[1] / 1e9, product_flops / best[0] / 1e9, "GFLOP/s",
           "oneDNN whole");
  }

  static void report(const char* what, int64_t a, int64_t b, double ours, double yardstick, const char* unit,
                     const char* against) {
    std::printf("%-32s %6ld %6ld %8.1f %-7s %s %8.1f  ratio %.2f\n", what, static_cast<long>(a),
                static_cast<long>(b), ours, unit, against, yardstick, ours / yardstick);
  }

  BenchOptions options_;
  int threads_;
  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceBuffer> read_memory_;
};

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  troupe::BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--cpu-time") {
      options.cpu_time = true;
    } else {
      options.threads = std::atoi(argv[i]);
    }
  }
  if (options.threads < 1 || options.threads > 1024) {
    std::fprintf(stderr, "usage: kernels_bench [THREADS] [--cpu-time]\n");
    return 2;
  }
  troupe::Bench(options).run();
}
