#include "worker/model/families/registry.h"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr std::array kFamilies{&kLlamaFamily, &kMistralFamily, &kQwen2Family, &kQwen3Family,
                               &kBaichuanFamily};

}  // namespace

const ModelFamily* find_model_family(std::string_view architecture) {
  for (const ModelFamily* family : kFamilies) {
    if (std::ranges::find(family->architectures, architecture) != family->architectures.end()) return family;
  }
  return nullptr;
}

std::vector<std::string_view> model_architectures() {
  std::vector<std::string_view> names;
  for (const ModelFamily* family : kFamilies) {
    names.insert(names.end(), family->architectures.begin(), family->architectures.end());
  }
  return names;
}

}  // namespace troupe
