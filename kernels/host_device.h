#pragma once

// A function that is compiled for the host and, where a CUDA compiler reads it, for the device too: both then
// compute the same.
#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
