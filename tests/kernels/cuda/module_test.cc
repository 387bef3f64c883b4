// A backend in a shared object: opened, refused with the reason, and the arrays of a step sent once.

#include "kernels/host/module.h"

#include <array>

#include "kernels/backends.h"
#include "kernels/cuda/device/find_device.h"
#include "kernels/cuda/gemm/gemm_kernels.h"
#include "kernels/cuda/step/readback.h"
#include "kernels/cuda/step/step_arrays.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::module_test {

using namespace cuda_testing;

constexpr std::chrono::milliseconds kWaitsForEver{0};

std::string reason(const std::string& path) {
  const auto backend = open_backend(path, {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
  return std::string(backend.status().message());
}

TEST(BackendModule, GivesItsDeviceAndItsBackend) {
  const auto device = find_device(EMULATED_MODULE);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(*device, "emulated (sm_90)");
  const auto backend = make_backend(EMULATED_MODULE, {.dtype = DType::kBFloat16});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->description(), "cuda emulated (sm_90)");
  EXPECT_FALSE((*backend)->host_memory());
  auto memory = (*backend)->allocate(64);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::string text = "sixteen bytes it";
  std::string back(text.size(), ' ');
  (*backend)->upload((*memory)->data(), text.data(), text.size());
  (*backend)->download(back.data(), (*memory)->data(), back.size());
  EXPECT_EQ(back, text);
}

TEST(BackendModule, SaysWhyItCannotBeHad) {
  EXPECT_NE(reason("/nowhere/libtroupe-cuda.so").find("/nowhere/libtroupe-cuda.so"), std::string::npos);
  EXPECT_NE(reason("libm.so.6").find("is no backend module"), std::string::npos);
}

TEST(FindDevice, SaysWhatWouldDo) {
  const auto found = [](const emulated::Driver& driver) {
    emulated::set_driver(driver);
    const auto device = cuda::find_device();
    emulated::set_driver({});
    cudaGetLastError();
    return device.status();
  };
  EXPECT_TRUE(found({}).ok());
  EXPECT_TRUE(found({.version = 13020}).ok());
  const Status none = found({.devices = 0});
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound) << none;
  const Status driver = found({.version = 12040});
  EXPECT_EQ(driver.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      driver.message(),
      "the NVIDIA driver is for CUDA 12.4, this build is of CUDA 13.0: install driver 580 or newer, or a "
      "build of CUDA 12.8, which takes drivers from 525 on");
  EXPECT_EQ(cuda::driver_too_old(11080, 12080),
            "the NVIDIA driver is for CUDA 11.8, this build is of CUDA 12.8: install driver 525 or newer");
  EXPECT_EQ(
      cuda::driver_too_old(0, 13000),
      "the NVIDIA driver is none that CUDA knows, this build is of CUDA 13.0: install driver 580 or newer");
  const Status chip = found({.major = 7});
  EXPECT_EQ(chip.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(chip.message().find("sm_80 (Ampere) or newer is needed"), std::string::npos) << chip;
}

TEST(FindDevice, LaunchesOverlapFromTheDriverOnThatTakesGraphsOfThem) {
  for (const int version : {12020, 12030, 13000}) {
    emulated::set_driver({.version = version});
    EXPECT_EQ(cuda::driver_overlaps(), version >= 12030) << version;
  }
  emulated::set_driver({});
}

TEST(BackendModule, TooMuchMemoryIsAnErrorAndNoEnd) {
  emulated::set_device_size({4, size_t{40} << 20});
  const auto memory = make_cuda(DType::kFloat32)->allocate(size_t{1} << 30);
  emulated::set_device_size({});
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
  EXPECT_NE(memory.status().message().find("1073741824 bytes"), std::string::npos) << memory.status();
}

TEST(BackendModule, ADeviceWithoutRoomForTheLibrarysWorkspaceIsAnErrorToo) {
  emulated::set_device_size({4, size_t{30} << 20});
  const auto backend = cuda::make_cuda_backend({.dtype = DType::kBFloat16});
  emulated::set_device_size({});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kResourceExhausted) << backend.status();
  EXPECT_NE(backend.status().message().find("cuBLASLt's workspace"), std::string::npos) << backend.status();
}

TEST(RoundVector, IsToNearestEven) {
  std::mt19937 random(2);
  const auto x = OwnedTensor::random(DType::kFloat32, {300}, random);
  const auto out = in_every_order(DType::kBFloat16, {300},
                                  [&](const Tensor& to) { cuda::round_vector(nullptr, x.view(), to); });
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(out.at(i), double{to_float(to_bfloat16(static_cast<float>(x.at(i))))}) << i;
  }
}

TEST(StepArrays, WhatHasNotChangedIsNotSentAgain) {
  cuda::Watchdog watchdog(kWaitsForEver);
  cuda::StepArrays arrays(nullptr, watchdog, [] {});
  std::vector<int32_t> slots{1, 2, 3};
  const int32_t* const first = arrays.of(cuda::StepArray::kSlots, slots);
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots), first);
  EXPECT_EQ(arrays.sent_count(), 1);
  slots[1] = 7;
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[1], 7);
  EXPECT_EQ(arrays.sent_count(), 2);
  slots.resize(2);
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[0], 1);
  EXPECT_EQ(arrays.sent_count(), 3);
  arrays.of(cuda::StepArray::kPositions, slots);
  EXPECT_EQ(arrays.sent_count(), 4) << "another array with the same numbers";
}

TEST(StepArrays, WithinAStepAnArrayIsLookedAtOnce) {
  cuda::Watchdog watchdog(kWaitsForEver);
  cuda::StepArrays arrays(nullptr, watchdog, [] {});
  std::vector<int32_t> slots{1, 2, 3};
  const std::vector<int32_t> others{4, 5, 6};
  arrays.begin_step(/*whole=*/false);
  arrays.of(cuda::StepArray::kSlots, slots);
  slots[1] = 7;  // no caller does so within a step
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[1], 2);
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, others)[1], 5) << "another array";
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[1], 7);
  slots[1] = 8;
  arrays.end_step();
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[1], 8);
  arrays.begin_step(/*whole=*/false);
  slots[1] = 9;
  EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots)[1], 9) << "another step";
}

// A step is made ready while the one before it is computed: neither sees the other's numbers.
TEST(StepArrays, AStepUnderWayKeepsItsOwn) {
  emulated::set_late(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    cuda::Watchdog watchdog(kWaitsForEver);
    cuda::StepArrays arrays(stream, watchdog, [] {});
    auto readbacks = std::array{cuda::PinnedReadback::make(stream, watchdog, 4),
                                cuda::PinnedReadback::make(stream, watchdog, 4)};
    const auto launch = [&](int32_t value) {
      arrays.begin_step(/*whole=*/false);
      readbacks[static_cast<size_t>(value % 2)]->start(
          arrays.of(cuda::StepArray::kSlots, std::vector<int32_t>{value}), 4);
      arrays.end_step();
    };
    launch(10);
    for (int32_t value = 11; value < 20; ++value) {
      launch(value);
      const size_t before = static_cast<size_t>(value - 1) % 2;
      EXPECT_EQ(*static_cast<const int32_t*>(readbacks[before]->wait()), value - 1);
    }
    // Outside of a step, and several times within one.
    const int32_t* const slots = arrays.of(cuda::StepArray::kSlots, std::vector<int32_t>{5});
    EXPECT_EQ(*slots, 5);
    arrays.begin_step(/*whole=*/false);
    std::vector<std::vector<int32_t>> values;
    for (int32_t value = 6; value < 12; ++value) {
      readbacks[0]->start(arrays.of(cuda::StepArray::kSlots, values.emplace_back(1, value)), 4);
      EXPECT_EQ(*static_cast<const int32_t*>(readbacks[0]->wait()), value);
    }
    arrays.end_step();
  }
  cudaStreamDestroy(stream);
  emulated::set_late(false);
}

// A step launched whole has its arrays side by side, sent by one copy; what does not fit goes by itself.
TEST(StepArrays, AWholeStepsArraysGoTogether) {
  emulated::set_late(true);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    cuda::Watchdog watchdog(kWaitsForEver);
    cuda::StepArrays arrays(stream, watchdog, [] { FAIL() << "nothing changes"; });
    arrays.reserve_whole(3 * static_cast<int64_t>(cuda::StepArrays::kAlignment));
    const std::vector<int32_t> slots{1, 2}, positions{3, 4, 5}, rows{6}, ids{7};
    for (int step = 0; step < 3; ++step) {
      const int64_t before = arrays.sent_count();
      arrays.begin_step(/*whole=*/true);
      const int32_t* const a = arrays.of(cuda::StepArray::kSlots, slots);
      const int32_t* const b = arrays.of(cuda::StepArray::kPositions, positions);
      EXPECT_EQ(arrays.of(cuda::StepArray::kSlots, slots), a) << "once";
      const int32_t* const c = arrays.of(cuda::StepArray::kSlots, rows);
      EXPECT_NE(c, a) << "others of the same kind have a place of their own";
      const int32_t* const d = arrays.of(cuda::StepArray::kIds, ids);
      EXPECT_EQ(arrays.sent_count(), before + (step == 0)) << "there is no room for the fourth";
      arrays.send();
      EXPECT_EQ(arrays.sent_count(), before + 1 + (step == 0));
      arrays.end_step();
      cudaStreamSynchronize(stream);
      EXPECT_EQ(a[1], 2);
      EXPECT_EQ(b[2], 5);
      EXPECT_EQ(c[0], 6);
      EXPECT_EQ(d[0], 7);
    }
  }
  cudaStreamDestroy(stream);
  emulated::set_late(false);
}

// Or a step's launches would be others, for nothing (step_graphs.h).
TEST(StepArrays, AnArrayWithoutValuesHasThePlaceOfOneWithSome) {
  cuda::Watchdog watchdog(kWaitsForEver);
  cuda::StepArrays arrays(nullptr, watchdog, [] { FAIL() << "nothing changes"; });
  arrays.reserve_whole(4 * static_cast<int64_t>(cuda::StepArrays::kAlignment));
  const std::vector<int32_t> rows{1, 2}, none, edits{3};
  const auto place_of_edits = [&](const std::vector<int32_t>& values) {
    arrays.begin_step(/*whole=*/true);
    arrays.of(cuda::StepArray::kRows, rows);
    const int32_t* const place = arrays.of(cuda::StepArray::kLogitEdits, values);
    arrays.send();
    arrays.end_step();
    return place;
  };
  EXPECT_EQ(place_of_edits(none), place_of_edits(edits));
}

// It stays where it is, unless there is not enough: then what uses it must be on its way.
TEST(StepArrays, MemoryThatKernelsWriteToGrowsBetweenLaunches) {
  int changes = 0;
  cuda::Watchdog watchdog(kWaitsForEver);
  cuda::StepArrays arrays(nullptr, watchdog, [&] { ++changes; });
  arrays.reserve(cuda::StepArray::kMus, 4 * sizeof(float));
  float* const place = arrays.memory<float>(cuda::StepArray::kMus, 4);
  EXPECT_EQ(arrays.memory<float>(cuda::StepArray::kMus, 2), place);
  EXPECT_EQ(changes, 0);
  arrays.memory<float>(cuda::StepArray::kMus, 5)[4] = 1;
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(arrays.sent_count(), 0);
}

TEST(StepArrays, ScratchIsLookedAtEachTime) {
  cuda::Watchdog watchdog(kWaitsForEver);
  cuda::StepArrays arrays(nullptr, watchdog, [] {});
  for (const bool whole : {false, true}) {
    if (whole) arrays.reserve_whole(4 * static_cast<int64_t>(cuda::StepArrays::kAlignment));
    std::vector<int32_t> scratch{1, 2};
    arrays.begin_step(whole);
    const int32_t* const first = arrays.of_scratch(cuda::StepArray::kDraws, scratch);
    scratch[1] = 3;
    const int32_t* const second = arrays.of_scratch(cuda::StepArray::kDraws, scratch);
    EXPECT_EQ(second == first, !whole) << "one that is sent later keeps its values";
    arrays.send();
    EXPECT_EQ(second[1], 3);
    if (whole) {
      EXPECT_EQ(first[1], 2);
    }
    arrays.end_step();
  }
}

}  // namespace troupe::module_test
