#pragma once

// One safetensors file: 8 bytes of header length (little endian), a JSON header, the tensors' bytes. Source:
// the format section of huggingface/safetensors. Every offset is untrusted input: an invalid header is
// refused here, so the owner of a SafetensorsFile may read every tensor it names.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "kernels/tensor.h"

namespace troupe {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // as written: "BF16"
  std::vector<int64_t> shape;  // [] is a scalar
  uint64_t begin = 0;          // bytes [begin, end) of the file's data section
  uint64_t end = 0;
};

struct SafetensorsHeader {
  uint64_t data_start = 0;                // in the file: 8 + header length
  std::vector<SafetensorsEntry> entries;  // in the order of their offsets, without gap or overlap
};

// Checks all of a file's bytes: lengths, types, offsets. Pure; errors do not contain the file's name.
StatusOr<SafetensorsHeader> parse_safetensors(std::string_view file);

// Returns the type if the backends can read it ("F32", "BF16", "F16").
std::optional<DType> loadable_dtype(std::string_view safetensors_dtype);

// A read-only mapping of a whole file. The descriptor is closed at once; the mapping keeps the file. If
// another process shortens the file while it is mapped, this one dies of SIGBUS (true of every mmap). Troupe
// maps weights only while loading and keeps copies (weights.h), so a running worker is safe from it.
class MappedFile {
 public:
  static StatusOr<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// A mapped file with its checked header. Errors: "<path>: …".
struct SafetensorsFile {
  std::string path;
  MappedFile file;
  SafetensorsHeader header;

  static StatusOr<SafetensorsFile> open(const std::string& path);
  // REQUIRES: `entry` of this file's header.
  std::string_view bytes(const SafetensorsEntry& entry) const;
};

}  // namespace troupe
