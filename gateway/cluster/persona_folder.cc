#include "gateway/cluster/persona_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/regular_file.h"
#include "common/json/json.h"
#include "common/settings/yaml.h"

namespace troupe {

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kFilesMax = 10'000;

bj::value value_of(const YamlEntry& entry) {
  if (entry.kind == YamlEntry::Kind::kNull) return nullptr;
  if (entry.kind == YamlEntry::Kind::kEmptyMap) return bj::object();
  if (entry.kind == YamlEntry::Kind::kList) {
    bj::array items;
    for (const std::string& item : entry.items) items.emplace_back(item);
    for (size_t i = 0; i < entry.maps; ++i) items.emplace_back(bj::object());
    return items;
  }
  if (entry.kind == YamlEntry::Kind::kPlain) {
    if (entry.text == "true" || entry.text == "false") return entry.text == "true";
    int64_t number = 0;
    const char* end = entry.text.data() + entry.text.size();
    const auto read = std::from_chars(entry.text.data(), end, number);
    if (read.ec == std::errc() && read.ptr == end) return number;
  }
  return bj::string(entry.text);
}

// The place of a dotted key, whose maps are made on the way: "lore.0.keys".
bj::value& place_of(bj::object& root, const std::string& key) {
  const std::vector<std::string> names = absl::StrSplit(key, '.');
  bj::value* at = &root[names.front()];
  for (size_t i = 1; i < names.size(); ++i) {
    if (bj::array* items = at->if_array()) {
      size_t index = 0;
      std::from_chars(names[i].data(), names[i].data() + names[i].size(), index);
      at = &items->at(std::min(index, items->size() - 1));
    } else {
      if (!at->is_object()) *at = bj::object();
      at = &at->get_object()[names[i]];
    }
  }
  return *at;
}

StatusOr<bj::object> read_yaml(const std::string& text, const std::string& file) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, flatten_yaml(text, file));
  bj::object root;
  for (const YamlEntry& entry : entries) place_of(root, entry.key) = value_of(entry);
  return root;
}

StatusOr<bj::object> read_json(const std::string& text, const std::string& file) {
  auto value = parse_json(text);
  if (!value.ok()) return annotate(value.status(), file);
  if (!value->is_object()) return invalid_argument(absl::StrCat(file, ": must be an object"));
  bj::object root = std::move(value->get_object());
  if (root.contains("card") || root.contains("system")) return root;
  bj::object persona;
  persona["card"] = std::move(root);
  return persona;
}

// Other fields of a file are the operator's: `language`, `check`.
std::string definition_of(bj::object& root) {
  if (!root.contains("card") && root.contains("system")) root["card"] = root["system"];
  for (const char* name : {"system", "language", "check"}) root.erase(name);
  return definition_json(root);
}

Status read_one(const std::filesystem::path& path, const OwnerOfTenant& owner_of, PersonaRegistry& registry) {
  const std::string file = path.string();
  TROUPE_ASSIGN_OR_RETURN(const std::string text, read_regular_file(file, kFileBytesMax));
  const bool is_yaml = path.extension() != ".json";
  auto root = is_yaml ? read_yaml(text, file) : read_json(text, file);
  if (!root.ok()) return root.status();
  Persona persona;
  persona.name = path.stem().string();
  persona.from_folder = true;
  if (const bj::value* tenant = root->if_contains("tenant"); tenant != nullptr && !tenant->is_null()) {
    const std::string name = tenant->is_string() ? std::string(tenant->get_string()) : std::string();
    const auto owner = owner_of(name);
    if (!owner)
      return invalid_argument(absl::StrCat(file, ": tenant: no API key has the tenant '", name, "'"));
    persona.owner = *owner;
  }
  if (!is_persona_name(persona.name))
    return invalid_argument(absl::StrCat(file, ": its name is none of a persona: UTF-8, 128 bytes at most"));
  PersonaVersion& version = persona.versions.emplace_back();
  version.definition = definition_of(*root);
  auto compiled = compile_versions(persona);
  if (!compiled.ok()) return invalid_argument(absl::StrCat(file, ": ", compiled.error().message));
  registry.adopt(std::move(persona));
  return absl::OkStatus();
}

}  // namespace

StatusOr<size_t> read_persona_folder(const std::string& path, const OwnerOfTenant& owner_of,
                                     PersonaRegistry& registry) {
  std::error_code failed;
  std::vector<std::filesystem::path> files;
  for (auto at = std::filesystem::directory_iterator(path, failed);
       !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    const std::string kind = at->path().extension().string();
    if (kind == ".yaml" || kind == ".yml" || kind == ".json") files.push_back(at->path());
    if (files.size() > kFilesMax)
      return invalid_argument(absl::StrCat("personas.dir: ", path, ": has more than ", kFilesMax, " files"));
  }
  if (failed) return invalid_argument(absl::StrCat("personas.dir: ", path, ": ", failed.message()));
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    const Status read = read_one(file, owner_of, registry);
    if (!read.ok()) return annotate(read, "personas.dir");
  }
  return files.size();
}

}  // namespace troupe
