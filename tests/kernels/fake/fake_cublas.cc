// Stands for a cuBLASLt: a library of such a name (tests/CMakeLists.txt).

extern "C" int fake_cublas_version() {
  return 99;
}
