#pragma once

// `TROUPE_DYNAMIC_SHARED(name);` in a kernel: the bytes of shared memory it was launched with. The emulator
// has its own.

#include <cuda_runtime.h>

#ifndef TROUPE_DYNAMIC_SHARED
#define TROUPE_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif
