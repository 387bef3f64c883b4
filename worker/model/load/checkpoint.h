#pragma once

// All tensors of a model directory by name: from `model.safetensors`, or the shards that
// `model.safetensors.index.json` names. Hides which file holds a tensor.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/core/status.h"
#include "kernels/tensor.h"
#include "worker/model/load/safetensors.h"
#include "worker/model/load/weight_source.h"

namespace troupe {

class Checkpoint final : public WeightSource {
 public:
  // Maps and checks every file. Errors name file, tensor and reason.
  static StatusOr<Checkpoint> open(const std::string& model_dir);

  bool has(const std::string& name, std::span<const int64_t> shape) const override;
  // A view into the mapping.
  StatusOr<SourceTensor> take(const std::string& name, std::span<const int64_t> shape) override;
  Status check_all_taken(bool (*ignored)(std::string_view name)) const override;
  std::string where(const std::string& name) const override;

 private:
  struct Location {
    size_t file_index = 0;
    size_t entry_index = 0;
    bool taken = false;
  };
  using Counts = std::function<bool(const std::string& tensor)>;
  Status add_file(const std::string& path, const Counts& counts);

  std::string model_dir_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Location> locations_;
};

}  // namespace troupe
