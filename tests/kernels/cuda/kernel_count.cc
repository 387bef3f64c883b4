// Part of the emulated module alone: lets a program that opened it count the kernels it has loaded, and the
// host's calls.

#include <cstdint>

#include "tests/kernels/emulated/emulator.h"

extern "C" {

__attribute__((visibility("default"))) uint64_t troupe_emulated_kernels_launched() {
  return troupe::emulated::kernels_launched();
}

__attribute__((visibility("default"))) void troupe_emulated_forget_kernels() {
  troupe::emulated::forget_kernels();
}

__attribute__((visibility("default"))) uint64_t troupe_emulated_driver_calls() {
  return troupe::emulated::driver_calls().all();
}

}  // extern "C"
