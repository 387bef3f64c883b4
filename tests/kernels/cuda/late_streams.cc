// Part of the emulated module alone: a program that opens it sees results no earlier than CUDA promises them.

#include "tests/kernels/emulated/emulator.h"

namespace {

[[maybe_unused]] const bool kLate = [] {
  troupe::emulated::set_late(true);
  return true;
}();

}  // namespace
