// Runs the fault simulation of the routing state over many seeds:
//
//   routing_faults                     3,000 seeds, from 1
//   routing_faults --seeds 100000 --first 1000000
//   routing_faults --seed 1234         one of them again, telling what happens
//
// Exit 1 where something did not hold: the seed, and what.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/gateway/faults/world.h"

namespace {

using troupe::route::faults::Outcome;
using troupe::route::faults::World;

uint64_t flag(int argc, char** argv, const char* name, uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  }
  return otherwise;
}

int one(uint64_t seed) {
  const Outcome outcome = World(seed, true).run();
  std::printf("seed %llu (%s): %lld requests, %lld failed, %lld faults: %s\n",
              static_cast<unsigned long long>(seed), outcome.setting.c_str(),
              static_cast<long long>(outcome.requests), static_cast<long long>(outcome.failed),
              static_cast<long long>(outcome.faults),
              outcome.breach.empty() ? "holds" : outcome.breach.c_str());
  return outcome.breach.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr uint64_t kAgain = 20, kBreachesShown = 10;
  if (const uint64_t seed = flag(argc, argv, "--seed", 0); seed != 0) return one(seed);
  const uint64_t first = flag(argc, argv, "--first", 1), seeds = flag(argc, argv, "--seeds", 3000);
  const auto begin = std::chrono::steady_clock::now();
  int64_t requests = 0, failed = 0, faults = 0;
  uint64_t breaches = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Outcome outcome = World(seed, false).run();
    requests += outcome.requests;
    failed += outcome.failed;
    faults += outcome.faults;
    if (seed < first + kAgain && World(seed, false).run().digest != outcome.digest)
      outcome.breach = "the same seed went another way the second time";
    if (outcome.breach.empty()) continue;
    if (++breaches <= kBreachesShown)
      std::printf("seed %llu (%s): %s\n", static_cast<unsigned long long>(seed), outcome.setting.c_str(),
                  outcome.breach.c_str());
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%llu seeds, %lld requests (%lld without an answer), %lld faults in %.1f s: %llu breaches\n",
              static_cast<unsigned long long>(seeds), static_cast<long long>(requests),
              static_cast<long long>(failed), static_cast<long long>(faults), took,
              static_cast<unsigned long long>(breaches));
  return breaches == 0 ? 0 : 1;
}
