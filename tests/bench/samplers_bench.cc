// Steps of a whole model whose rows are drawn with samplers, for samplers.py to ask in turns.
//
//   build/bin/samplers_bench MODEL_DIR THREADS   MODEL_DIR needs config.json alone: weights are made up
//
// A question a line on stdin, an answer a line on stdout:
//   ARM BATCH KEYS N   CPU seconds, of all threads together, of one of N steps of BATCH requests with a
//   history
//                      of KEYS tokens each, the host's work on the history included: a share of some
//                      hundredths is not to be seen in the time that a machine with other work takes
// ARM: greedy; temperature; cuts (top_k, top_p); all (every sampler of docs/api.md but mirostat and top_k,
// which would spare the others their work); mirostat.

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "worker/model/logit_adjuster.h"
#include "worker/model/runner.h"
#include "worker/model/sampler.h"

namespace troupe {
namespace {

constexpr int32_t kBlockSize = 16;

double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "samplers_bench: %s\n", message.c_str());
  std::exit(1);
}

void switch_all_on(SamplingParams& params) {
  params.top_p = 0.97f;
  params.min_p = 0.01f;
  params.repetition_penalty = 1.15f;
  params.presence_penalty = 0.2f;
  params.frequency_penalty = 0.1f;
  HistorySamplers& history = params.history;
  history.repetition_range = 1024;
  history.repetition_slope = 0.7f;
  history.dry = {.multiplier = 0.8f};
  history.dry.breakers =
      std::make_shared<const DryBreakers>(std::vector<std::vector<int32_t>>{{11}, {13}, {17, 19}});
  history.banned = {5, 6};
  history.banned_sequences = {{21, 22}, {23, 24, 25}};
  SamplerChain& chain = params.chain.emplace();
  chain.top_a = 0.02f;
  chain.tfs = 0.98f;
  chain.typical_p = 0.95f;
  chain.epsilon = 3e-4f;
  chain.eta = 5e-4f;
  chain.has_dynamic_temperature = true;
  chain.dynatemp_low = 0.7f;
  chain.dynatemp_high = 1.6f;
  chain.smoothing_factor = 0.3f;
  chain.xtc_probability = 0.5f;
}

SamplingParams params_of(const std::string& arm) {
  SamplingParams params;
  if (arm == "greedy") {
    params.temperature = 0;
  } else if (arm == "cuts") {
    params.top_k = 40;
    params.top_p = 0.9f;
  } else if (arm == "all") {
    switch_all_on(params);
  } else if (arm == "mirostat") {
    params.chain.emplace().mirostat = 2;
  } else if (arm != "temperature") {
    fail("unknown arm '" + arm + "'");
  }
  return params;
}

// A request that decodes, as the engine has it.
struct Request {
  SamplingParams params;
  std::unique_ptr<LogitAdjuster> adjuster;
  std::vector<BlockId> blocks;
  TokenId last = 0;
  float mu = 0;

  SampleRow row(int32_t position) {
    SampleRow row{.draw = draw_params(params, static_cast<uint64_t>(position))};
    if (adjuster != nullptr) {
      row.penalties = adjuster->penalties();
      row.edits = adjuster->edits(static_cast<uint64_t>(position));
    }
    if (params.chain) row.chain = &*params.chain;
    row.mirostat_mu = &mu;
    return row;
  }
};

std::vector<Request> requests_of(const std::string& arm, int32_t batch, int32_t keys, int32_t blocks) {
  std::vector<Request> requests(static_cast<size_t>(batch));
  for (int32_t r = 0; r < batch; ++r) {
    Request& request = requests[static_cast<size_t>(r)];
    request.params = params_of(arm);
    request.params.seed = static_cast<uint64_t>(r);
    if (request.params.chain) request.mu = first_mirostat_mu(*request.params.chain);
    std::vector<TokenId> history(static_cast<size_t>(keys));
    for (size_t i = 0; i < history.size(); ++i)  // passages that come again
      history[i] = static_cast<TokenId>((i % 700 * 7919 + static_cast<size_t>(r)) % 2000);
    request.adjuster = LogitAdjuster::make(request.params, history);
    for (int32_t i = 0; i < blocks; ++i) request.blocks.push_back(r * blocks + i);
  }
  return requests;
}

double seconds_of_step(ModelRunner& runner, const std::string& arm, int32_t batch, int32_t keys,
                       int32_t steps) {
  const int32_t blocks = (keys + steps + kBlockSize - 1) / kBlockSize;
  if (batch * blocks > runner.block_count()) fail("too few blocks of KV memory");
  std::vector<Request> requests = requests_of(arm, batch, keys, blocks);
  std::vector<SampleRow> rows;
  const double start = now();
  for (int32_t step = 0; step < steps; ++step) {
    Batch items;
    rows.clear();
    for (Request& request : requests) {
      BatchItem& item = items.items.emplace_back();
      item.ids = {&request.last, 1};
      item.count = 1;
      item.start = keys + step;
      item.samples = true;
      item.blocks = request.blocks;
      rows.push_back(request.row(step));
    }
    const auto output = runner.run(items, {rows, {}});
    if (!output.ok()) fail(std::string(output.status().message()));
    for (size_t r = 0; r < requests.size(); ++r) {
      requests[r].last = output->tokens[r];
      if (requests[r].adjuster != nullptr) requests[r].adjuster->add_emitted(output->tokens[r]);
    }
  }
  return (now() - start) / steps;
}

int main_of(int argc, char** argv) {
  if (argc != 3) fail("usage: samplers_bench MODEL_DIR THREADS");
  RunnerOptions options;
  options.model_dir = argv[1];
  options.load_format = LoadFormat::kDummy;
  options.dtype = DType::kBFloat16;
  options.threads = std::atoi(argv[2]);
  options.block_size = kBlockSize;
  options.kv_cache_tokens = 64 * 1536;
  options.max_num_seqs = 64;
  options.max_batched_tokens = 64;
  auto runner = ModelRunner::load(options);
  if (!runner.ok()) fail(std::string(runner.status().message()));
  std::printf("%s\n", (*runner)->description().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string arm;
    int32_t batch = 0, keys = 0, steps = 0;
    if (!(words >> arm >> batch >> keys >> steps)) fail("no question: '" + line + "'");
    std::printf("%.9f\n", seconds_of_step(**runner, arm, batch, keys, steps));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  return troupe::main_of(argc, argv);
}
