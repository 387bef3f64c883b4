#pragma once

// Where cuBLASLt may lie: NVIDIA's packages, PyPI's and conda's each have a place of their own, of which the
// loader knows few.

#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

// The environment, as far as the places depend on it.
struct CublasPlaces {
  std::string named;  // TROUPE_CUBLAS_DIR: the first of all, also before the loader's own
  std::string path;   // PATH: a Python's packages lie beside the folder of its python3
  std::string home;   // HOME
  std::string root;   // in front of /usr; tests have another

  static CublasPlaces of_environment();
};

// The places that exist, the first to be looked at first.
std::vector<std::string> cublas_folders(const CublasPlaces& places);

// "libcublasLt.so.13" where `reason`, a dlerror(), is that this file is missing; else empty.
std::string missing_cublas(std::string_view reason);

// Opens it from one of the folders, until the process ends: what is opened later and needs a library of that
// name has this one. kUnavailable says where it was looked for, and what to install.
Status open_cublas(const std::string& library, const CublasPlaces& places);
// Opens all that `places.named` has, whatever the version, before the loader finds others.
void open_named_cublas(const CublasPlaces& places);

}  // namespace troupe
