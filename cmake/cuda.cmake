# TROUPE_CUDA: whether libtroupe-cuda.so is built. A sanitizer's or fuzzer's runtime cannot be in a module beside device code; the
# kernels run under sanitizers on the CPU instead (tests/kernels/emulated).
set(TROUPE_CUDA OFF)
if(CUDA STREQUAL "OFF" OR TROUPE_SANITIZE OR TROUPE_FUZZ)
  return()
endif()
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # looked for in vain by an earlier configuration: there may be one now
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TROUPE_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(TROUPE_NVCC)
    set(CMAKE_CUDA_COMPILER ${TROUPE_NVCC})
  endif()
endif()
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  # Machine code for A100 and its kin, and for Hopper with what only Hopper has; what is newer compiles the former's at its start.
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # kernels/CMakeLists.txt names the static one
  if(TROUPE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TROUPE_CCACHE})
  endif()
  set(CMAKE_CUDA_STANDARD 17)  # while the compiler is looked at: CMake 3.25 cannot ask nvcc for C++20
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  # Debian's packages name it; named to nvcc as a system folder it would hide libstdc++'s own <math.h>.
  list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES /usr/include)
  # CMake 3.25 sets a property of this target whether there is such a library or not, and since CUDA 13 there is none.
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  find_package(CUDAToolkit)
  # nvcc knows its own headers; named to it, their path would keep objects from being found by another clone.
  list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CUDAToolkit_INCLUDE_DIRS})
endif()
if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cublasLt)
  set(TROUPE_CUDA ON)
  message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}")
elseif(CUDA STREQUAL "ON")
  message(FATAL_ERROR "CUDA=ON, but there is no CUDA compiler with cuBLASLt (nvcc on the PATH, in /usr/local/cuda/bin, or in CUDACXX)")
else()
  message(STATUS "CUDA backend: not built, no CUDA compiler with cuBLASLt here")
endif()
