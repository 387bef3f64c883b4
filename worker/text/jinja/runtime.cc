#include "worker/text/jinja/runtime.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

std::string missing_attribute(const Value& value, std::string_view whole_name) {
  const std::string name(clipped(whole_name));
  if (const List* list = value.list(); list != nullptr && !name.empty() && name[0] >= '0' && name[0] <= '9') {
    return absl::StrCat(value.type_name(), " object has no element ", name);
  }
  return absl::StrCat("'", value.type_name(), " object' has no attribute '", name, "'");
}

// Named items of a groupby tuple; nullptr: no such item.
const Value* group_field(const Value& value, std::string_view name) {
  const List* list = value.list();
  if (list == nullptr || !list->is_group) return nullptr;
  return name == "grouper" ? &list->items[0] : name == "list" ? &list->items[1] : nullptr;
}

}  // namespace

Runtime::Runtime(const RuntimeLimits& limits, Dict context, std::string now)
    : limits_(limits),
      context_(std::move(context)),
      now_(std::move(now)),
      meter_(limits.steps_max, limits.output_bytes_max) {}

void Runtime::charge_text(size_t bytes) {
  check_text(bytes);
  meter_.make(bytes);
}

void Runtime::check_text(size_t bytes) const {
  if (bytes > limits_.output_bytes_max)
    throw JinjaError(absl::StrCat("more than ", limits_.output_bytes_max, " bytes of text"));
}

void Runtime::check_repetition(size_t size, int64_t count) const {
  if (size > 0 && static_cast<uint64_t>(count) > limits_.output_bytes_max / size)
    check_text(limits_.output_bytes_max + 1);
}

Value Runtime::text(std::string bytes, bool markup) {
  charge_text(bytes.size());
  return Value(std::move(bytes), markup);
}

std::vector<Value> Runtime::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    for (std::string_view character : characters(value.text())) items.emplace_back(character);
  } else if (const List* list = value.list()) {
    items = list->items;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (Generator* generator = value.generator()) {
    if (!generator->used) items = generator->items;
    generator->used = true;
  } else {
    throw JinjaError("'" + value.type_name() + "' object is not iterable");
  }
  step(static_cast<int64_t>(items.size()));
  return items;
}

Value Runtime::call(const Value& callee, Arguments& arguments) {
  require_defined(callee);
  Object* object = callee.object();
  if (object == nullptr) throw JinjaError("'" + callee.type_name() + "' object is not callable");
  return object->call(*this, arguments);
}

Value Runtime::attribute(const Value& value, std::string_view name) {
  require_defined(value);
  Value result;
  if (Object* object = value.object(); object != nullptr && object->attribute(*this, name, result))
    return result;
  if (find_method(value, name, result)) return result;
  const Value* found = nullptr;
  if (const Dict* dict = value.dict()) found = dict->find(name);
  if (Namespace* space = value.space()) found = space->fields.find(name);
  if (found == nullptr) found = group_field(value, name);
  return found != nullptr ? *found : Value::undefined(missing_attribute(value, name));
}

Value Runtime::item(const Value& value, const Value& key) {
  require_defined(value);
  if (const Dict* dict = value.dict()) {
    const Value* found = is_hashable(key) ? dict->find(key) : nullptr;
    if (found != nullptr) return *found;
  }
  if (key.is_integer_like()) {
    int64_t index = key.integer();
    const List* list = value.list();
    if (list != nullptr && list->kind <= ListKind::kRange) {
      auto size = static_cast<int64_t>(list->items.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) return list->items[static_cast<size_t>(index)];
    } else if (value.is_string()) {
      int64_t size = length(value);
      if (index < 0) index += size;
      if (index >= 0 && index < size) return slice(*this, value, {index, index + 1, std::nullopt});
    }
  }
  if (key.is_string()) {
    Value result;
    if (find_method(value, key.text(), result)) return result;
    if (Object* object = value.object(); object != nullptr && object->attribute(*this, key.text(), result))
      return result;
    Namespace* space = value.space();
    if (const Value* found = group_field(value, key.text())) return *found;
    if (const Value* found = space == nullptr ? nullptr : space->fields.find(std::string_view(key.text())))
      return *found;
  }
  if (key.is_string()) return Value::undefined(missing_attribute(value, key.text()));
  return Value::undefined(missing_attribute(value, key.is_number() ? to_text(key) : key.type_name()));
}

Value Runtime::path(const Value& value, const Value& attribute) {
  if (!attribute.is_string()) return item(value, attribute);
  charge_read(attribute.text().size());
  Value current = value;
  for (absl::string_view piece : absl::StrSplit(attribute.text(), '.')) {
    step();
    std::string part(piece);
    bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    current = item(current, is_index ? Value(static_cast<int64_t>(std::stoi(part))) : Value(part));
  }
  return current;
}

Value Runtime::make_namespace(Dict fields) {
  namespaces_.push_back(std::make_unique<Namespace>());
  namespaces_.back()->fields = std::move(fields);
  return Value(namespaces_.back().get());
}

}  // namespace troupe::jinja
