# TROUPE_CUDA: whether libtroupe-cuda.so is built. A sanitizer's or fuzzer's runtime cannot be in a module beside device code; the
# kernels run under sanitizers on the CPU instead (tests/kernels/emulated).
set(TROUPE_CUDA OFF)
if(CUDA STREQUAL "OFF" OR TROUPE_SANITIZE OR TROUPE_FUZZ)
  return()
endif()

# Machine code for A100 and its kin, and for Hopper with what only Hopper has. Blackwell compiles sm_90's PTX at its first start, and
# all that is newer; the kernels overlap there and prefetch as on Hopper. The others are machine code alone: a first start without that
# compilation, for 1.6 to 1.8 times the compile time of every day and three times the size (skinny_gemm.cu: 41 for 24 s of one core).
set(everyday_architectures 80 90a-real 90-virtual)
set(all_architectures 80 86-real 89-real 90a-real 90-virtual 100a-real 120a-real)
set(TROUPE_CUDA_ARCHITECTURES everyday CACHE STRING
    "GPUs to compile for: everyday (${everyday_architectures}), all (${all_architectures}, as far as the compiler knows them), or a list")

# troupe_cuda_architectures(RESULT): that setting as CMake's own list. REQUIRES: CMAKE_CUDA_COMPILER.
function(troupe_cuda_architectures result)
  if(NOT TROUPE_CUDA_ARCHITECTURES MATCHES "^(everyday|all)$")
    set(${result} ${TROUPE_CUDA_ARCHITECTURES} PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  set(taken)
  foreach(architecture ${${TROUPE_CUDA_ARCHITECTURES}_architectures})
    string(REGEX MATCH "^[0-9]+" number ${architecture})
    if(number IN_LIST known)
      list(APPEND taken ${architecture})
    endif()
  endforeach()
  set(${result} ${taken} PARENT_SCOPE)
endfunction()

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
  troupe_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
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
  message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
elseif(CUDA STREQUAL "ON")
  message(FATAL_ERROR "CUDA=ON, but there is no CUDA compiler with cuBLASLt (nvcc on the PATH, in /usr/local/cuda/bin, or in CUDACXX)")
else()
  message(STATUS "CUDA backend: not built, no CUDA compiler with cuBLASLt here")
endif()
