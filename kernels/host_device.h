#pragma once

// A function that is compiled for the host and, where a CUDA compiler reads it, for the device too: both then
// compute the same. TROUPE_TEAM: one of a template that takes what computes it, which is on one of the two:
// compiled for the device alone where a CUDA compiler reads it. TROUPE_TEAM_APART: and it is called, so that
// the registers of what is called from many places are needed once.
#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#define TROUPE_TEAM __device__
#define TROUPE_TEAM_APART __device__ __noinline__
#else
#define TROUPE_HOST_DEVICE
#define TROUPE_TEAM
#define TROUPE_TEAM_APART
#endif
