#pragma once

// How the processor time of a job grows with its text. A job on a shared thread must not cost more than
// linear time, whatever the text: one request of a quadratic one stops all others.
//
// The time of n, 2n, 4n and 8n bytes is measured on this thread's clock, the least of several each, with n
// large enough for the clock. Between 2n and 8n it grows by 4 where it is linear (5 for n log n), by 16 where
// it is quadratic; the bound, 8, lies between. Caches and a busy machine make steps, too, but not at every
// length: a job fails that looks bad at two of them, tried again and again.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/common/sanitized.h"
#include "tests/cpu_time.h"
#include "tests/hostile/hostile_texts.h"

namespace troupe {

inline constexpr double kExponentMax = 1.5;

struct CpuGrowth {
  static constexpr size_t kLengths = 4;  // n, 2n, 4n, 8n bytes
  size_t bytes = 0;                      // n
  double seconds[kLengths] = {};
  // Time grows as bytes^exponent, from 2n to 8n.
  double exponent() const { return std::log2(seconds[3] / std::max(seconds[1], 1e-7)) / 2; }
};

class GrowthMeter {
 public:
  // `text_of(bytes)` makes a text of about that size, outside the time; `job(text)` is what is measured.
  using TextOf = std::function<std::string(size_t bytes)>;
  using Job = std::function<void(const std::string& text)>;
  GrowthMeter(TextOf text_of, Job job) : text_of_(std::move(text_of)), job_(std::move(job)) {
    // Memory that is taken from the system anew each time, as large pieces are, would make a step of its own.
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
  }

  // (Under sanitizers, whose time is another, the job only runs.)
  ::testing::AssertionResult is_near_linear() const {
    size_t bytes = enough_bytes();
    if (kSanitized) return ::testing::AssertionSuccess();
    for (int length = 0;; ++length, bytes *= 4) {
      const CpuGrowth growth = measure(bytes);
      if (growth.exponent() < kExponentMax) return ::testing::AssertionSuccess();
      if (length == 0) continue;
      auto failure = ::testing::AssertionFailure() << "grows with exponent " << growth.exponent() << ": ";
      for (size_t i = 0; i < CpuGrowth::kLengths; ++i)
        failure << (growth.bytes << i) << " bytes " << growth.seconds[i] * 1e3 << " ms; ";
      return failure;
    }
  }

 private:
  static constexpr size_t kBytesMin = 256, kBytesMax = 64u << 10;  // of n
  static constexpr double kEnoughSeconds = 0.0003;                 // for 8n
  static constexpr double kGoodExponent = 1.25;                    // that one try is enough for
  static constexpr int kTries = 8;

  double seconds_of(const std::string& text) const {
    const double before = cpu_seconds();
    job_(text);
    return cpu_seconds() - before;
  }

  // (The least of several, for one that a busy machine holds up would make a text too short look long
  // enough.)
  size_t enough_bytes() const {
    constexpr int kLooks = kSanitized ? 1 : 4;
    for (size_t bytes = kBytesMin; bytes < kBytesMax; bytes *= 4) {
      const std::string text = text_of_(8 * bytes);
      int slow = 0;
      while (slow < kLooks && seconds_of(text) >= kEnoughSeconds) ++slow;
      if (slow == kLooks) return bytes;
    }
    return kBytesMax;
  }

  CpuGrowth measure(size_t bytes) const {
    CpuGrowth growth;
    growth.bytes = bytes;
    std::fill(std::begin(growth.seconds), std::end(growth.seconds), 1e9);
    std::string texts[CpuGrowth::kLengths];
    for (size_t i = 0; i < CpuGrowth::kLengths; ++i) texts[i] = text_of_(bytes << i);
    for (int tried = 1;; ++tried) {
      for (size_t i = 0; i < CpuGrowth::kLengths; ++i)
        growth.seconds[i] = std::min(growth.seconds[i], seconds_of(texts[i]));
      if (tried == kTries || growth.exponent() < (tried == 1 ? kGoodExponent : kExponentMax)) return growth;
    }
  }

  TextOf text_of_;
  Job job_;
};

// Runs `job` on every text.
inline void expect_linear(const std::string& name, const std::vector<HostileText>& texts,
                          const GrowthMeter::Job& job) {
  for (const HostileText& text : texts) {
    const GrowthMeter meter([&text](size_t bytes) { return text.text(bytes); }, job);
    EXPECT_TRUE(meter.is_near_linear()) << name << ", on: " << text.name;
  }
}

}  // namespace troupe
