// model.safetensors.index.json beside two good shards: the index is refused with its name, or every tensor it
// lists can be taken from the shard it says.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "worker/model/load/checkpoint.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string shard(const std::string& tensor) {
  const std::string header = R"({")" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + std::string(8, '\1');
}

// This process's folder; holds the shards "a.safetensors" and "b.safetensors" of the tensors "a" and "b".
struct ModelDir {
  ModelDir()
      : path(std::filesystem::temp_directory_path() / ("checkpoint_fuzz." + std::to_string(getpid()))) {
    std::filesystem::create_directory(path);
    for (const std::string tensor : {"a", "b"}) write(path / (tensor + ".safetensors"), shard(tensor));
  }
  ~ModelDir() { std::filesystem::remove_all(path); }
  const std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ModelDir dir;
  const std::string index = dir.path / "model.safetensors.index.json";
  write(index, {reinterpret_cast<const char*>(data), size});
  auto checkpoint = troupe::Checkpoint::open(dir.path);
  if (!checkpoint.ok()) {
    require(checkpoint.status().message().find(dir.path.string()) != std::string::npos);
    return 0;
  }
  const int64_t shape[] = {2};
  size_t taken = 0;
  for (const char* tensor : {"a", "b"}) taken += checkpoint->take(tensor, shape).ok() ? 1 : 0;
  require(taken > 0);
  return 0;
}
