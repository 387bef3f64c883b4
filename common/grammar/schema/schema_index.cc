#include "common/grammar/schema/schema_index.h"

#include "absl/strings/str_cat.h"

namespace troupe::grammar {

namespace {

constexpr int kDepthMax = 128;

std::string_view text_of(const bj::object& object, std::string_view key) {
  const bj::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_string()) return {};
  return {value->as_string().data(), value->as_string().size()};
}

// A reference against the URI it stands in, as far as documents in one file need it: absolute ones stay,
// others replace what is behind the last slash.
std::string join(const std::string& base, std::string_view reference) {
  if (reference.empty() || reference[0] == '#') return absl::StrCat(base, to_absl(reference));
  if (reference.find("://") != reference.npos || reference.substr(0, 4) == "urn:")
    return std::string(reference);
  if (reference[0] == '/') {
    const size_t scheme = base.find("://");
    const size_t root = scheme == base.npos ? base.npos : base.find('/', scheme + 3);
    return absl::StrCat(base.substr(0, root == base.npos ? base.size() : root), to_absl(reference));
  }
  const size_t slash = base.rfind('/');
  return absl::StrCat(slash == base.npos ? "" : base.substr(0, slash + 1), to_absl(reference));
}

std::string unescaped(std::string_view step) {
  std::string text;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%' && i + 2 < step.size()) {
      text += static_cast<char>(std::strtol(std::string(step.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else if (step[i] == '~' && i + 1 < step.size()) {
      text += step[++i] == '1' ? '/' : '~';
    } else {
      text += step[i];
    }
  }
  return text;
}

const bj::value* child_of(const bj::value* value, const std::string& step) {
  if (const auto* object = value->if_object(); object != nullptr) return object->if_contains(step);
  const auto* array = value->if_array();
  if (array == nullptr || step.empty() || step.size() > 6 ||
      step.find_first_not_of("0123456789") != step.npos)
    return nullptr;
  return array->if_contains(static_cast<size_t>(std::atoi(step.c_str())));
}

const bj::value* follow(const bj::value* value, std::string_view pointer) {
  while (value != nullptr && !pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    value = child_of(value, unescaped(pointer.substr(1, end - 1)));
    pointer.remove_prefix(end);
  }
  return value;
}

std::string escaped(std::string_view step) {
  std::string text;
  for (const char c : step) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

StatusOr<SchemaIndex> SchemaIndex::make(const bj::value& root) {
  SchemaIndex index;
  index.root_ = &root;
  TROUPE_RETURN_IF_ERROR(index.visit(root, "#", "", 0));
  return index;
}

Status SchemaIndex::visit(const bj::value& value, const std::string& path, const std::string& base_outside,
                          int depth) {
  if (depth > kDepthMax) return invalid_argument("the schema is nested too deeply");
  std::string base = base_outside;
  if (const auto* object = value.if_object(); object != nullptr) {
    const std::string_view id = text_of(*object, "$id");
    if (!id.empty() && id[0] != '#') {
      base = join(base, id);
      if (base.ends_with('#')) base.pop_back();
      names_.emplace(base, &value);
    } else if (!id.empty()) {  // draft 4 to 7: an anchor
      names_.emplace(absl::StrCat(base, to_absl(id)), &value);
    }
    for (const std::string_view key : {"$anchor", "$dynamicAnchor"})
      if (const auto anchor = text_of(*object, key); !anchor.empty())
        names_.emplace(absl::StrCat(base, "#", to_absl(anchor)), &value);
  }
  places_[&value] = {path, base};
  if (const auto* object = value.if_object(); object != nullptr) {
    for (const auto& [key, child] : *object)
      TROUPE_RETURN_IF_ERROR(
          visit(child, absl::StrCat(path, "/", escaped({key.data(), key.size()})), base, depth + 1));
  } else if (const auto* array = value.if_array(); array != nullptr) {
    for (size_t i = 0; i < array->size(); ++i)
      TROUPE_RETURN_IF_ERROR(visit((*array)[i], absl::StrCat(path, "/", i), base, depth + 1));
  }
  return {};
}

const bj::value* SchemaIndex::resolve(const bj::value* from, std::string_view reference) const {
  const auto place = places_.find(from);
  const std::string uri = join(place == places_.end() ? "" : place->second.base, reference);
  if (const auto found = names_.find(uri); found != names_.end()) return found->second;
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string document = uri.substr(0, hash), fragment = uri.substr(std::min(hash + 1, uri.size()));
  const bj::value* start = root_;
  if (!document.empty()) {
    const auto found = names_.find(document);
    if (found == names_.end()) return nullptr;
    start = found->second;
  }
  return follow(start, fragment);
}

std::string SchemaIndex::reference_to(const bj::value* value) {
  std::string uri = absl::StrCat("urn:troupe:", absl::Hex(reinterpret_cast<uintptr_t>(value)));
  names_.emplace(uri, value);
  return uri;
}

std::string SchemaIndex::path(const bj::value* value) const {
  const auto place = places_.find(value);
  return place == places_.end() ? "#" : place->second.path;
}

}  // namespace troupe::grammar
