// Runs the fault simulations over many seeds, one of the worlds there are:
//
//   routing_faults                            routing state, gossip (world.h): 3,000 seeds, from 1
//   routing_faults --world store              gateways that share a table through a store (shared_world.h)
//   routing_faults --world requests           retries and resumes (requests_world.h)
//   routing_faults --seeds 100000 --first 1000000
//   routing_faults --seed 1234                one of them again, telling what happens
//   routing_faults --world store --mutant 1   with one thing broken that the world must notice
//
// Exit 1 where something did not hold: the seed, what, and all that had happened until then.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/gateway/faults/requests_world.h"
#include "tests/gateway/faults/shared_world.h"
#include "tests/gateway/faults/world.h"

namespace {

using troupe::route::faults::Outcome;
using troupe::route::faults::RequestsWorld;
using troupe::route::faults::SharedWorld;
using troupe::route::faults::World;

const char* text_flag(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

uint64_t flag(int argc, char** argv, const char* name, uint64_t otherwise) {
  const char* text = text_flag(argc, argv, name, nullptr);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Runs {
  std::string world;
  uint64_t mutant = 0;

  Outcome run(uint64_t seed, bool verbose) const {
    if (world == "store") return SharedWorld(seed, verbose, mutant == 0).run();
    if (world == "requests") return RequestsWorld(seed, verbose, mutant == 0).run();
    return World(seed, verbose, mutant == 0).run();
  }
};

void tell(const Runs& runs, uint64_t seed, const Outcome& outcome) {
  std::printf("--world %s --seed %llu (%s): %lld requests, %lld failed, %lld faults: %s\n",
              runs.world.c_str(), static_cast<unsigned long long>(seed), outcome.setting.c_str(),
              static_cast<long long>(outcome.requests), static_cast<long long>(outcome.failed),
              static_cast<long long>(outcome.faults),
              outcome.breach.empty() ? "holds" : outcome.breach.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  constexpr uint64_t kAgain = 20, kBreachesShown = 10;
  const Runs runs{text_flag(argc, argv, "--world", "routing"), flag(argc, argv, "--mutant", 0)};
  if (runs.world != "routing" && runs.world != "store" && runs.world != "requests") {
    std::fprintf(stderr, "--world: routing, store or requests\n");
    return 2;
  }
  if (const uint64_t seed = flag(argc, argv, "--seed", 0); seed != 0) {
    const Outcome outcome = runs.run(seed, true);
    tell(runs, seed, outcome);
    return outcome.breach.empty() ? 0 : 1;
  }
  const uint64_t first = flag(argc, argv, "--first", 1), seeds = flag(argc, argv, "--seeds", 3000);
  const auto begin = std::chrono::steady_clock::now();
  int64_t requests = 0, failed = 0, faults = 0;
  uint64_t breaches = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Outcome outcome = runs.run(seed, false);
    requests += outcome.requests;
    failed += outcome.failed;
    faults += outcome.faults;
    if (seed < first + kAgain && runs.run(seed, false).digest != outcome.digest)
      outcome.breach = "the same seed went another way the second time";
    if (outcome.breach.empty()) continue;
    if (++breaches <= kBreachesShown) tell(runs, seed, outcome);
    if (breaches == 1 && runs.mutant == 0) runs.run(seed, true);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%llu seeds, %lld requests (%lld without an answer), %lld faults in %.1f s: %llu breaches\n",
              static_cast<unsigned long long>(seeds), static_cast<long long>(requests),
              static_cast<long long>(failed), static_cast<long long>(faults), took,
              static_cast<unsigned long long>(breaches));
  return breaches == 0 ? 0 : 1;
}
