// Steps of a whole model beside what the machine can do, for engines.py and tests/gpu/bench.sh to ask in
// turns.
//
//   build/bin/model_bench MODEL_DIR THREADS [int8|DEVICE [plain] [apart] [eager] [gaps] [measured[=FILE]]]
//                                          MODEL_DIR needs config.json alone: weights are made up
//   build/bin/model_bench MODEL_DIR write  writes those weights there, for others
//
// DEVICE: a backend's name (kernels.h) other than cpu: cuda, or a module's path. plain: without cascades;
// apart: no kernel begins before the one before it has ended; eager: no step is a graph; measured:
// implementations chosen by measuring, as the worker does, and kept in FILE; gaps: for the question of that
// name.
//
// A question a line on stdin, an answer a line on stdout:
//   prefill N               seconds of a step of N new tokens
//   hit CACHED N            seconds of a step of N new tokens behind CACHED ones
//   decode BATCH KEYS N     seconds of one of N steps of BATCH requests with KEYS tokens each; greedy
//                           sampling included
//   personas P BATCH KEYS OWN N
//                           the same, of requests that share their first KEYS tokens with those of their
//                           persona, one of P, and have OWN tokens behind them
//   drawn BATCH KEYS N      the steps of decode, too, but a number made of all tokens that they draw (at most
//                           nine digits): the same wherever the same was asked before
//   gaps BATCH KEYS N       the same as decode, but seconds that the device stood still between two of these
//                           steps, the median; `worst gap` after it, the longest; cuda, with the word gaps
//   graphs                  steps so far that were made executable graphs, as no kept one could be updated
//   unchanged               steps so far that were launched as a kept graph just as it was
//   read BYTES              seconds of reading as many bytes with all threads
//   product                 FLOP/s of oneDNN's own 2048 × 2048 × 2048 bfloat16 product with as many threads
// and of a device, by its own ops:
//   copy MIB                bytes read and written a second by a copy of so many MiB
//   product N               FLOP/s of an N × N × N bfloat16 product
//   bytes                   of the weights that a step reads: all but the embedding

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/backends.h"
#include "kernels/host/host_buffer.h"
#include "kernels/host/openmp.h"
#include "kernels/host/thread_pool.h"
#include "tests/bench/made_up_checkpoint.h"
#include "tests/bench/read_loop.h"
#include "worker/model/runner.h"
#include "worker/model/sampler.h"

namespace troupe {
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int64_t kReadBytes = int64_t{256} << 20;  // read over and over: larger than any cache
constexpr int64_t kPiece = int64_t{1} << 20;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

[[noreturn]] void fail(std::string_view message) {
  std::fprintf(stderr, "model_bench: %.*s\n", static_cast<int>(message.size()), message.data());
  std::exit(1);
}

template <typename T>
T value_or_fail(StatusOr<T> result) {
  if (!result.ok()) fail(to_std(result.status().message()));
  return *std::move(result);
}

class Bench {
 public:
  Bench(const RunnerOptions& options, int threads)
      : runner_(value_or_fail(ModelRunner::load(options))),
        device_name_(options.backend),
        threads_(threads),
        pool_(threads),
        read_memory_(value_or_fail(HostBuffer::allocate(static_cast<size_t>(kReadBytes)))) {
    std::printf("%s\n", runner_->description().c_str());
    std::fflush(stdout);
  }

  double answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    int32_t a = 0;
    int32_t b = 0;
    int32_t c = 0;
    words >> what;
    if (what == "read") {
      int64_t bytes = 0;
      words >> bytes;
      return read(bytes);
    }
    if (what == "graphs") return static_cast<double>(runner_->graphs().made);
    if (what == "unchanged") return static_cast<double>(runner_->graphs().unchanged);
    if (what == "worst") return gaps_.empty() ? 0 : gaps_.back();
    if (what == "personas") {
      int32_t count = 0;
      Work work{.fresh = 1};
      words >> work.personas >> work.batch >> work.shared >> work.cached >> count;
      work.cached += work.shared;
      work.count = count;
      return steps(work);
    }
    words >> a >> b >> c;
    if (what == "prefill") return steps({.batch = 1, .fresh = a});
    if (what == "hit") return steps({.batch = 1, .cached = a, .fresh = b});
    if (what == "decode") return steps({.batch = a, .cached = b, .fresh = 1, .count = c});
    if (what == "drawn") return drawn({.batch = a, .cached = b, .fresh = 1, .count = c});
    if (what == "gaps") return median_gap({.batch = a, .cached = b, .fresh = 1, .count = c});
    if (what == "copy") return device_copy(int64_t{a} << 20);
    if (what == "bytes") return static_cast<double>(step_weight_bytes());
    if (what == "product") return a > 0 ? device_product(a) : product();
    fail("unknown question '" + line + "'");
  }

  // False, and said, where the measurements could not be kept.
  bool save_tuning() {
    const Status saved = runner_->save_tuning();
    if (!saved.ok()) std::fprintf(stderr, "model_bench: %s\n", std::string(saved.message()).c_str());
    return saved.ok();
  }

 private:
  struct Work {
    int32_t batch = 0;
    int32_t cached = 0;
    int32_t fresh = 0;     // new tokens of each request in a step
    int32_t count = 1;     // of steps
    int32_t personas = 1;  // request r has the (r mod personas)th
    int32_t shared = 0;    // leading tokens that a persona's requests have in the same blocks
  };

  // Seconds a step (nan where the KV memory is too small for it), launched as the engine does: where the
  // device computes by itself behind the one before, whose tokens only the device knows. What the cache holds
  // is whatever earlier steps left: the same work as any other.
  double steps(const Work& work) {
    const std::vector<std::vector<BlockId>> tables = tables_of(work);
    if (tables.empty()) return std::nan("");
    std::vector<TokenId> ids(static_cast<size_t>(work.fresh));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 7919 % 32000);
    std::vector<TokenId> names(static_cast<size_t>(work.batch));
    for (size_t r = 0; r < names.size(); ++r) names[r] = -1 - static_cast<TokenId>(r);
    const std::vector<SampleRow> draws(static_cast<size_t>(work.batch), {.draw = {.temperature = 0}});
    const auto collect = [&] {
      for (const TokenId token : runner_->collect().tokens) {
        drawn_ = (drawn_ * 31 + static_cast<uint64_t>(token)) % 999'999'937;  // a prime of nine digits
      }
    };
    const double start = now();
    for (int32_t step = 0; step < work.count; ++step) {
      Batch batch;
      for (int32_t r = 0; r < work.batch; ++r) {
        BatchItem item;
        item.id = static_cast<RequestId>(r);
        const bool named = step > 0 && work.fresh == 1 && runner_->runs_ahead();
        item.ids = named ? std::span(&names[static_cast<size_t>(r)], 1) : std::span(ids);
        item.count = static_cast<int32_t>(ids.size());
        item.start = work.cached + step * work.fresh;
        item.samples = true;
        item.blocks = tables[static_cast<size_t>(r)];
        batch.items.push_back(item);
      }
      const Status status = runner_->launch(batch, {draws, {}});
      if (!status.ok()) fail(std::string(status.message()));
      if (step > 0 || !runner_->runs_ahead()) collect();
    }
    if (runner_->runs_ahead()) collect();
    return (now() - start) / work.count;
  }

  double drawn(const Work& work) {
    drawn_ = 0;
    return std::isnan(steps(work)) ? std::nan("") : static_cast<double>(drawn_);
  }

  // The first few steps do not count: they may be made for the first time.
  double median_gap(const Work& work) {
    constexpr std::ptrdiff_t kFirst = 4;
    gaps_.clear();
    if (std::isnan(steps(work))) return std::nan("");
    gaps_ = runner_->take_gaps();
    if (gaps_.size() <= size_t{kFirst}) fail("no gaps were told: model_bench MODEL_DIR THREADS cuda gaps");
    gaps_.erase(gaps_.begin(), gaps_.begin() + kFirst);
    std::sort(gaps_.begin(), gaps_.end());
    return gaps_[gaps_.size() / 2];
  }

  // None where there are not as many blocks.
  std::vector<std::vector<BlockId>> tables_of(const Work& work) {
    const auto blocks_of = [](int32_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; };
    const int32_t shared = work.shared / kBlockSize;  // blocks
    const int32_t own = blocks_of(work.cached + work.fresh * work.count) - shared;
    if (work.personas * shared + work.batch * own > runner_->block_count()) return {};
    std::vector<std::vector<BlockId>> tables(static_cast<size_t>(work.batch));
    for (int32_t r = 0; r < work.batch; ++r) {
      std::vector<BlockId>& table = tables[static_cast<size_t>(r)];
      table.resize(static_cast<size_t>(shared + own));
      const auto first_own = table.begin() + shared;
      std::iota(table.begin(), first_own, r % work.personas * shared);
      std::iota(first_own, table.end(), work.personas * shared + r * own);
    }
    return tables;
  }

  double read(int64_t bytes) {
    const char* data = static_cast<const char*>(read_memory_->data());
    const double start = now();
    pool_.parallel_for(bytes / kPiece,
                       [&](int64_t i, int) { bench::read(data + i * kPiece % kReadBytes, kPiece); });
    return (now() - start) * static_cast<double>(bytes) / static_cast<double>(bytes / kPiece * kPiece);
  }

  // Written to, and the same for every question: memory that was never touched is one page of zeros, read at
  // the speed of the first cache.
  void* product_memory(size_t which, size_t bytes) {
    std::unique_ptr<HostBuffer>& buffer = product_memory_[which];
    if (buffer == nullptr) {
      buffer = value_or_fail(HostBuffer::allocate(bytes));
      auto* numbers = static_cast<uint16_t*>(buffer->data());
      for (size_t i = 0; i < bytes / 2; ++i)
        numbers[i] = static_cast<uint16_t>(0x3f00 + i * 7919 % 256);  // about 1 in bfloat16
    }
    return buffer->data();
  }

  Backend& device() {
    if (device_ == nullptr) device_ = value_or_fail(make_backend(device_name_, {.dtype = DType::kBFloat16}));
    return *device_;
  }

  // Seconds of one call of `op`, which only launches: several of them behind one another, the first not
  // counted.
  double seconds_of(const std::function<void()>& op, DeviceBuffer& memory) {
    constexpr int kCalls = 10;
    char byte = 0;
    op();
    device().download(&byte, memory.data(), 1);  // waits
    const double start = now();
    for (int i = 0; i < kCalls; ++i) op();
    device().download(&byte, memory.data(), 1);
    return (now() - start) / kCalls;
  }

  double device_copy(int64_t bytes) {
    constexpr int64_t kBlockBytes = int64_t{1} << 20;
    const auto blocks = static_cast<int32_t>(bytes / kBlockBytes);
    const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 64, .block_size = kBlockBytes / 256};
    const auto memory = value_or_fail(device().allocate(static_cast<size_t>(2 * blocks * kBlockBytes)));
    device().bind_kv(layout, memory->data(), 2 * blocks);
    std::vector<BlockCopy> copies;
    for (int32_t i = 0; i < blocks; ++i) copies.push_back({i, blocks + i});
    const double seconds = seconds_of([&] { device().copy_blocks(copies); }, *memory);
    return 2.0 * static_cast<double>(blocks * kBlockBytes) / seconds;
  }

  double device_product(int64_t size) {
    std::vector<BFloat16> numbers(static_cast<size_t>(size * size));
    fill_random_weight("product", Tensor::make(numbers.data(), DType::kBFloat16, {size, size}), 1);
    const auto bytes = numbers.size() * sizeof(BFloat16);
    const auto weight =
        value_or_fail(device().pack(Tensor::make(numbers.data(), DType::kBFloat16, {size, size})));
    const auto x = value_or_fail(device().allocate(bytes));
    const auto out = value_or_fail(device().allocate(bytes));
    device().upload(x->data(), numbers.data(), bytes);
    const auto tensor = [&](DeviceBuffer& of) {
      return Tensor::make(of.data(), DType::kBFloat16, {size, size});
    };
    const double seconds = seconds_of(
        [&] { device().matmul({.x = tensor(*x), .weight = weight.get(), .out = tensor(*out)}); }, *out);
    return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / seconds;
  }

  int64_t step_weight_bytes() const {
    const ModelConfig& config = runner_->config();
    const int64_t embedding = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size * 2;
    return runner_->memory().weight_bytes - embedding;
  }

  double product() {
    using dnnl::memory;
    constexpr int64_t kSize = 2048;
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(threads_);
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const memory::desc rows({kSize, kSize}, memory::data_type::bf16, memory::format_tag::ab);
    const memory::desc any({kSize, kSize}, memory::data_type::bf16, memory::format_tag::any);
    const memory::desc out({kSize, kSize}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(rows, any, out), engine);
    const dnnl::matmul primitive(description);
    memory x(rows, engine, product_memory(0, rows.get_size()));
    memory weight(description.weights_desc(), engine,
                  product_memory(1, description.weights_desc().get_size()));
    memory result(out, engine, product_memory(2, out.get_size()));
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {  // the first one fetches and compiles
      const double start = now();
      primitive.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, result}});
      best = std::min(best, now() - start);
    }
    omp_set_num_threads(threads_before);
    return 2.0 * kSize * kSize * kSize / best;
  }

  std::unique_ptr<ModelRunner> runner_;
  std::string device_name_;
  std::unique_ptr<Backend> device_;  // beside the runner's, for what the device can do
  int threads_;
  ThreadPool pool_;
  std::unique_ptr<HostBuffer> read_memory_;
  std::array<std::unique_ptr<HostBuffer>, 3> product_memory_;
  uint64_t drawn_ = 0;        // by the steps so far
  std::vector<double> gaps_;  // sorted
};

int main_of(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[2]) == "write") {
    const ModelConfig config = value_or_fail(load_model_config(argv[1]));
    if (!write_checkpoint(argv[1], config))
      fail(std::string("cannot write ") + argv[1] + "/model.safetensors");
    return 0;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 0;
  bool plain = false, apart = false, eager = false, gaps = false, measured = false, known = true;
  std::string tune_file;
  for (int i = 4; i < argc; ++i) {
    std::string_view word = argv[i];
    if (word.starts_with("measured=")) {
      tune_file = word.substr(word.find('=') + 1);
      word = "measured";
    }
    plain |= word == "plain";
    apart |= word == "apart";
    eager |= word == "eager";
    gaps |= word == "gaps";
    measured |= word == "measured";
    known &= word == "plain" || word == "apart" || word == "eager" || word == "gaps" || word == "measured";
  }
  if (threads < 1 || !known) {
    std::fprintf(stderr,
                 "usage: model_bench MODEL_DIR THREADS [int8|DEVICE [plain] [apart] [eager] [gaps] "
                 "[measured[=FILE]]] | model_bench MODEL_DIR write\n");
    return 2;
  }
  const std::string_view how = argc > 3 ? argv[3] : "cpu";
  RunnerOptions options;
  options.model_dir = argv[1];
  options.load_format = LoadFormat::kDummy;
  options.dtype = DType::kBFloat16;
  options.threads = threads;
  if (how == "int8") options.weight_format = WeightFormat::kInt8;
  options.max_model_len = 4096;
  options.kv_cache_tokens = 32 * 1024;
  options.max_batched_tokens = 1024;
  if (how != "int8" && how != "cpu") {
    options.backend = how;
    options.cuda.cascade = !plain;
    options.cuda.overlaps = !apart;
    options.cuda.graphs = !eager;
    options.cuda.times_gaps = gaps;
    options.cuda.measures = measured;
    options.cuda.tune_file = tune_file;
    options.kv_cache_tokens = 0;       // what fits
    options.memory_utilization = 0.8;  // beside it: the copy and the product
    options.max_batched_tokens = 2048;
    options.max_num_seqs = 256;
  }
  Bench bench(options, threads);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%.9g\n", bench.answer(line));
    std::fflush(stdout);
  }
  return bench.save_tuning() ? 0 : 1;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  return troupe::main_of(argc, argv);
}
