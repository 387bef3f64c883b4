#include "worker/model/load/checkpoint.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kShardEnding = ".safetensors";
constexpr size_t kShardCountMax = 4096;

// Maps each tensor to its shard, as the index does.
using WeightMap = std::map<std::string, std::string>;

// A shard is a plain file name in the model's folder; the index must not lead elsewhere.
bool is_plain_shard_name(std::string_view name) {
  return name.size() > std::string_view(kShardEnding).size() && name.ends_with(kShardEnding) &&
         name.front() != '.' && name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

StatusOr<WeightMap> read_index(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value index, read_json_file(path));
  const bj::value* found = index.is_object() ? index.get_object().if_contains("weight_map") : nullptr;
  const bj::object* map = found == nullptr ? nullptr : found->if_object();
  if (map == nullptr || map->empty()) {
    return invalid_argument(absl::StrCat(path, ": key 'weight_map' must be an object {tensor: file}"));
  }
  WeightMap weight_map;
  for (const auto& [key, value] : *map) {
    const std::string tensor(key.data(), key.size());
    const bj::string* shard = value.if_string();
    if (shard == nullptr || !is_plain_shard_name({shard->data(), shard->size()})) {
      return invalid_argument(absl::StrCat(path, ": tensor '", tensor, "': ", to_json(value),
                                           " is not the name of a .safetensors file in the same folder"));
    }
    weight_map.emplace(tensor, std::string(shard->data(), shard->size()));
  }
  return weight_map;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dimension : shape) absl::StrAppend(&text, text.size() > 1 ? ", " : "", dimension);
  return text + "]";
}

}  // namespace

StatusOr<Checkpoint> Checkpoint::open(const std::string& model_dir) {
  Checkpoint checkpoint;
  checkpoint.model_dir_ = model_dir;
  const std::string single = absl::StrCat(model_dir, "/", kSingleName);
  const std::string index = absl::StrCat(model_dir, "/", kIndexName);
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    TROUPE_RETURN_IF_ERROR(checkpoint.add_file(single, [](const std::string&) { return true; }));
    return checkpoint;
  }
  if (!std::filesystem::exists(index, ignored)) {
    return absl::NotFoundError(absl::StrCat(model_dir, ": has neither ", kSingleName, " nor ", kIndexName));
  }
  TROUPE_ASSIGN_OR_RETURN(const WeightMap weight_map, read_index(index));
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  if (shards.size() > kShardCountMax) {
    return invalid_argument(
        absl::StrCat(index, ": names ", shards.size(), " files, more than ", kShardCountMax));
  }
  for (const std::string& shard : shards) {
    const Status status =
        checkpoint.add_file(absl::StrCat(model_dir, "/", shard), [&](const std::string& tensor) {
          const auto listed = weight_map.find(tensor);
          return listed != weight_map.end() && listed->second == shard;
        });
    if (!status.ok()) return annotate(status, index);
  }
  for (const auto& [tensor, shard] : weight_map) {
    const auto found = checkpoint.locations_.find(tensor);
    const std::string path = absl::StrCat(model_dir, "/", shard);
    if (found == checkpoint.locations_.end() || checkpoint.files_[found->second.file_index].path != path) {
      return invalid_argument(absl::StrCat(index, ": tensor '", tensor, "' is not in ", shard));
    }
  }
  return checkpoint;
}

// Adds the file's tensors that `counts` names: shards may hold copies, and buffers of old exports.
Status Checkpoint::add_file(const std::string& path, const Counts& counts) {
  TROUPE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  for (size_t i = 0; i < file.header.entries.size(); ++i) {
    const std::string& name = file.header.entries[i].name;
    if (counts(name)) locations_.try_emplace(name, Location{files_.size(), i, false});
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

bool Checkpoint::has(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = locations_.find(name);
  if (found == locations_.end()) return false;
  const auto& entry = files_[found->second.file_index].header.entries[found->second.entry_index];
  return std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end());
}

StatusOr<SourceTensor> Checkpoint::take(const std::string& name, std::span<const int64_t> shape) {
  const auto found = locations_.find(name);
  if (found == locations_.end()) {
    return absl::NotFoundError(absl::StrCat(model_dir_, ": tensor '", name, "' (", shape_text(shape),
                                            ") is missing in the safetensors"));
  }
  const SafetensorsFile& file = files_[found->second.file_index];
  const SafetensorsEntry& entry = file.header.entries[found->second.entry_index];
  if (!std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end())) {
    return invalid_argument(absl::StrCat(where(name), ": shape ", shape_text(entry.shape),
                                         ", but config.json makes it ", shape_text(shape)));
  }
  const std::optional<DType> dtype = loadable_dtype(entry.dtype);
  if (!dtype) {
    return invalid_argument(
        absl::StrCat(where(name), ": dtype ", entry.dtype, " is not supported; F32, BF16 and F16 are"));
  }
  found->second.taken = true;
  SourceTensor result;
  Tensor& tensor = result.tensor;
  // Tensor is a mutable view by type; the pages are read-only and loading only reads.
  tensor.data = const_cast<char*>(file.bytes(entry).data());
  tensor.dtype = *dtype;
  tensor.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  return result;
}

Status Checkpoint::check_all_taken(bool (*ignored)(std::string_view name)) const {
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsEntry& entry : file.header.entries) {
      const auto counted = locations_.find(entry.name);  // the index may not name it
      if (counted != locations_.end() && !counted->second.taken && !ignored(entry.name)) {
        return invalid_argument(absl::StrCat(where(entry.name),
                                             ": is not part of this architecture; leaving a weight out "
                                             "would make every answer wrong"));
      }
    }
  }
  return absl::OkStatus();
}

std::string Checkpoint::where(const std::string& name) const {
  const auto found = locations_.find(name);
  const std::string& path = found == locations_.end() ? model_dir_ : files_[found->second.file_index].path;
  return absl::StrCat(path, ": tensor '", name, "'");
}

}  // namespace troupe
