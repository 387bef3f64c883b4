// Stands for NVIDIA's driver on a machine without a device (tests/CMakeLists.txt).

extern "C" int cuInit(unsigned) {
  return 100;
}
