// The number of shared keys from which on a cascade is taken, with times of the test's own.

#include "kernels/cuda/attention/cascade_gate.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kernels/cuda/attention/attention_plan.h"

namespace troupe::cuda {
namespace {

// Keys are read at so much a key; a cascade reads the shared ones once, and costs `pass` more.
struct Device {
  double pass = 0;
  int32_t requests_max = 256, keys_max = 4096, blocks = 1 << 20;
  int calls = 0;

  CascadeSeconds seconds() {
    return [this](int32_t requests, int32_t keys, bool cascade) -> std::optional<double> {
      ++calls;
      if (requests > requests_max || keys > keys_max || keys / 16 + requests * 16 > blocks)
        return std::nullopt;
      return (cascade ? pass + keys : requests * keys) + requests * 256;
    };
  }
};

TEST(CascadeGate, IsWhereItPays) {
  Device device{.pass = 1000};
  const CascadeGate gate = measure_cascade_gate(device.seconds());
  for (size_t size = 0; size < CascadeGate::kSizes; ++size) {
    const int32_t requests = CascadeGate::requests_of(size);
    const int32_t fewest = gate.keys_min(size);
    SCOPED_TRACE(requests);
    const auto pays = [&](int32_t keys) {
      return 1000 + keys + requests * 256 <= 0.97 * (requests * (keys + 256));
    };
    ASSERT_NE(fewest, CascadeGate::kNever);
    EXPECT_TRUE(pays(fewest));
    EXPECT_TRUE(fewest == 64 || !pays(fewest / 2));
    EXPECT_TRUE(gate.takes(requests, fewest));
    EXPECT_FALSE(gate.takes(requests, fewest - 1));
  }
  EXPECT_EQ(gate.keys_min(0), 2048);
  EXPECT_EQ(gate.keys_min(), 64);
  EXPECT_LT(device.calls, 100) << "some milliseconds each";
}

TEST(CascadeGate, IsNeverOpenWhereItNeverPays) {
  Device device{.pass = 1e9};
  const CascadeGate gate = measure_cascade_gate(device.seconds());
  EXPECT_EQ(gate.keys_min(), CascadeGate::kNever);
  EXPECT_FALSE(gate.takes(1000, 1'000'000));
}

// A model of short contexts, or one with little memory left, is measured as far as there is room; larger
// groups are taken to be no worse.
TEST(CascadeGate, AsksForNoMoreThanThereIs) {
  Device device{.pass = 100, .requests_max = 20, .keys_max = 512};
  CascadeGate gate = measure_cascade_gate(device.seconds());
  EXPECT_EQ(gate.keys_min(3), 64);
  EXPECT_EQ(gate.keys_min(7), 64);
  device = {.pass = 300, .blocks = 80};
  gate = measure_cascade_gate(device.seconds());
  EXPECT_EQ(gate.keys_min(0), 512);
  EXPECT_EQ(gate.keys_min(1), 128);
  EXPECT_EQ(gate.keys_min(7), 128);
  device = {.keys_max = 10};
  EXPECT_EQ(measure_cascade_gate(device.seconds()).keys_min(), CascadeGate::kNever);
}

TEST(CascadeGate, ALoneRequestIsNoGroup) {
  EXPECT_FALSE(CascadeGate::always().takes(1, 4096));
  EXPECT_TRUE(CascadeGate::always().takes(2, 16));
  EXPECT_FALSE(CascadeGate::guessed().takes(3, 4096));
  EXPECT_TRUE(CascadeGate::guessed().takes(4, 256));
  for (const auto& [requests, size] : {std::pair(2, 0), std::pair(3, 0), std::pair(4, 1), std::pair(255, 6),
                                       std::pair(256, 7), std::pair(5000, 7)}) {
    EXPECT_EQ(CascadeGate::size_of(requests), static_cast<size_t>(size)) << requests;
  }
}

TEST(CascadeGate, IsKeptAsText) {
  Device device{.pass = 3000};
  const CascadeGate gate = measure_cascade_gate(device.seconds());
  EXPECT_EQ(gate.text(), "2:4096 4:2048 8:512 16:256 32:128 64:64 128:64 256:64");
  EXPECT_EQ(CascadeGate::parse(gate.text())->text(), gate.text());
  EXPECT_EQ(CascadeGate::parse(CascadeGate::guessed().text())->text(), CascadeGate::guessed().text());
  for (const char* text :
       {"", "2:64", "2:64 4:64 8:64 16:64 32:64 64:64 128:64 255:64", "rows",
        "2:64 4:64 8:64 16:64 32:64 64:64 128:64 256:", "2:-1 4:64 8:64 16:64 32:64 64:64 128:64 256:64",
        "2:64 4:64 8:64 16:64 32:64 64:64 128:64 256:64 512:64"}) {
    EXPECT_FALSE(CascadeGate::parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace troupe::cuda
