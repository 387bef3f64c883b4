// cuBLASLt is found where NVIDIA's packages, PyPI's and conda's put it; where it is not it is said what to
// do.

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/backends.h"
#include "kernels/host/cublas_folders.h"
#include "kernels/host/module.h"
#include "tests/kernels/kernel_testing.h"

namespace troupe::cublas_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Cublas : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "troupe-cublas-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string make(const std::string& folder) const {
    fs::create_directories(root_ / folder);
    return (root_ / folder).string();
  }
  fs::path root_;
};

TEST_F(Cublas, FoldersOfEveryPackagingAreKnown) {
  const std::string named = make("named"), cuda = make("usr/local/cuda/lib64");
  const std::string of_12 = make("usr/local/cuda-12.8/lib64"), of_13 = make("usr/local/cuda-13.0/lib64");
  const std::string conda = make("conda/lib");
  const std::string wheel_13 = make("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
  const std::string wheel_12 = make("venv/lib/python3.12/site-packages/nvidia/cublas/lib");
  const std::string by_root = make("usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib");
  const std::string by_user = make("home/.local/lib/python3.11/site-packages/nvidia/cu13/lib");
  make("venv/lib/python3.12/site-packages/nvidia/cudnn/lib");
  for (const char* bin : {"venv/bin", "conda/bin"}) std::ofstream(make(bin) + "/python3");
  const std::string tools = make("tools/bin"), tools_lib = make("tools/lib");
  const CublasPlaces places{.named = named,
                            .path = tools + "::" + make("venv/bin") + ":" + make("conda/bin"),
                            .home = make("home"),
                            .root = root_.string()};
  EXPECT_THAT(cublas_folders(places),
              ElementsAre(named, cuda, of_13, of_12, make("venv/lib"), wheel_13, wheel_12, conda,
                          make("usr/local/lib"), by_root, make("home/.local/lib"), by_user));
  EXPECT_THAT(cublas_folders({.named = {}, .path = {}, .home = {}, .root = make("empty")}), ElementsAre());
}

TEST_F(Cublas, OnlyALoadersWordsAboutItAreTaken) {
  EXPECT_EQ(missing_cublas("libcublasLt.so.13: cannot open shared object file: No such file or directory"),
            "libcublasLt.so.13");
  EXPECT_EQ(missing_cublas("libcublasLt.so.12: cannot open shared object file"), "libcublasLt.so.12");
  for (const char* other :
       {"", "libcublasLt.so.", "libcublasLt.so.13", "libcublasLt.so.x: cannot", "libm.so.6: cannot",
        "/lib/libtroupe-cuda.so: undefined symbol: libcublasLt.so.13: no"}) {
    EXPECT_EQ(missing_cublas(other), "") << other;
  }
}

TEST_F(Cublas, WhatToInstallIsSaidForBothReleases) {
  const auto said = [&](const char* library) {
    const Status status = open_cublas(library, {.named = {}, .path = {}, .home = {}, .root = make("empty")});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  };
  EXPECT_THAT(said("libcublasLt.so.13"),
              HasSubstr("`pip install nvidia-cublas==13.*` or `apt-get install libcublas-13-0`"));
  EXPECT_THAT(said("libcublasLt.so.12"),
              HasSubstr("`pip install nvidia-cublas-cu12` or `apt-get install libcublas-12-8`"));
}

// A module that needs libcublasLt.so.99, which lies where no loader looks. (In children: a library once
// opened stays so.)
TEST_F(Cublas, AModuleGetsItFromWhereItLies) {
  unsetenv("TROUPE_CUBLAS_DIR");
  setenv("HOME", make("home").c_str(), 1);
  const auto find = [] {
    const auto device = find_device(FAKE_MODULE);
    std::fputs(device.ok() ? device->c_str() : std::string(device.status().message()).c_str(), stderr);
    std::_Exit(device.ok() ? 0 : 1);
  };
  EXPECT_EXIT(find(), ::testing::ExitedWithCode(1),
              "libcublasLt.so.99 \\(cuBLAS\\) is neither .*`pip install nvidia-cublas==99");

  const std::string user = make("home/.local/lib/python3.11/site-packages/nvidia/cu13/lib");
  const std::string library = user + "/libcublasLt.so.99";
  std::ofstream(library) << "no library";
  EXPECT_EXIT(find(), ::testing::ExitedWithCode(1), library + ": file too short");
  fs::copy_file(FAKE_CUBLAS, library, fs::copy_options::overwrite_existing);
  EXPECT_EXIT(find(), ::testing::ExitedWithCode(0), "cuBLASLt 99");

  setenv("HOME", make("elsewhere").c_str(), 1);
  EXPECT_EXIT(find(), ::testing::ExitedWithCode(1), "is neither where the loader looks");
  setenv("TROUPE_CUBLAS_DIR", user.c_str(), 1);
  EXPECT_EXIT(find(), ::testing::ExitedWithCode(0), "cuBLASLt 99");
  unsetenv("TROUPE_CUBLAS_DIR");
}

TEST_F(Cublas, WithoutTheModuleThatIsWhatIsSaid) {
  const auto device = find_device((root_ / "lib/libtroupe-cuda.so").string());
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(device.status().message()),
              HasSubstr("libtroupe-cuda.so: there is no such file: this is a build without"));
}

// A driver's library that begins with cuInit() = 100, "no device"; and none.
TEST_F(Cublas, AGpuIsADriverThatKnowsOneOrADeviceFile) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  unsetenv("CUDA_VISIBLE_DEVICES");
  const std::string none = make("none"), one = make("one");
  for (const char* other : {"/nvidiactl", "/nvidia-uvm", "/null", "/nvidia"}) std::ofstream(none + other);
  std::ofstream(one + "/nvidia0");
  const auto found = [](bool driver, const std::string& files, const char* visible = nullptr) {
    if (driver) dlopen(FAKE_DRIVER, RTLD_LAZY);
    if (visible != nullptr) setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    const Status status = find_cuda_device(files).status();
    std::fputs(std::string(status.message()).c_str(), stderr);
    std::_Exit(status.code() == absl::StatusCode::kNotFound      ? 3
               : status.code() == absl::StatusCode::kUnavailable ? 4
                                                                 : 5);
  };
  using ::testing::ExitedWithCode;
  EXPECT_EXIT(found(false, none), ExitedWithCode(3), "^no NVIDIA driver: libcuda.so.1");
  EXPECT_EXIT(found(true, none), ExitedWithCode(3), "^NVIDIA's driver finds no device");
  EXPECT_EXIT(found(false, one), ExitedWithCode(4),
              "there is a GPU \\(.*/nvidia0\\), but no NVIDIA driver: libcuda.so.1.*--gpus all");
  EXPECT_EXIT(found(true, one), ExitedWithCode(4),
              "there is a GPU \\(.*/nvidia0\\), but NVIDIA's driver finds no device");
  EXPECT_EXIT(found(true, one, "0"), ExitedWithCode(4), "there is a GPU");
  EXPECT_EXIT(found(true, one, ""), ExitedWithCode(3), "finds no device");
  EXPECT_EXIT(found(false, one, "-1"), ExitedWithCode(3), "no NVIDIA driver");
}

}  // namespace troupe::cublas_test
