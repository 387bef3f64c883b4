// A safetensors file of foreign bytes: either refused, or every byte of its data section belongs to exactly
// one of its tensors.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "worker/model/load/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto header = troupe::parse_safetensors(file);
  if (!header.ok()) {
    if (header.status().message().empty()) std::abort();
    return 0;
  }
  uint64_t covered = 0;
  for (const troupe::SafetensorsEntry& entry : header->entries) {
    if (entry.begin != covered || entry.end < entry.begin) std::abort();
    covered = entry.end;
    for (const int64_t dimension : entry.shape) {
      if (dimension < 0) std::abort();
    }
  }
  if (header->data_start + covered != size) std::abort();
  return 0;
}
