#include "worker/text/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

bool is_hashable_kind(ListKind kind) {
  return kind == ListKind::kTuple || kind == ListKind::kRange;
}

// The identity of a value that equals only itself, else null.
const void* identity_of(const Value& value) {
  if (value.space() != nullptr) return value.space();
  if (value.generator() != nullptr) return value.generator();
  return value.object();
}

// Equal keys have equal texts: 1, 1.0 and true are one key in Python.
std::string key_text(const Value& key) {
  charge_read(kPartBytes);
  if (key.is_string()) {
    charge_read(key.text().size());
    return "s" + key.text();
  }
  if (key.is_none()) return "n";
  if (key.is_integer_like()) return absl::StrCat("i", key.integer());
  if (key.is_float()) {
    double number = key.number();
    bool whole = std::trunc(number) == number && std::fabs(number) < 9e15;
    return whole ? absl::StrCat("i", static_cast<int64_t>(number))
                 : absl::StrCat("f", std::bit_cast<uint64_t>(number));
  }
  if (const List* list = key.list(); list != nullptr && is_hashable_kind(list->kind)) {
    std::string text = list->kind == ListKind::kTuple ? "t" : "r";
    for (const Value& item : list->items) {
      std::string part = key_text(item);
      charge_read(part.size());
      absl::StrAppend(&text, part.size(), ":", part);
    }
    return text;
  }
  if (key.is_undefined()) return "u";
  if (const void* identity = identity_of(key)) {
    return absl::StrCat("o", reinterpret_cast<uintptr_t>(identity));  // the key keeps it alive
  }
  throw JinjaError("unhashable type: '" + key.type_name() + "'");
}

template <typename T, typename Data>
T* get_pointer(const Data& data) {
  auto* pointer = std::get_if<std::shared_ptr<T>>(&data);
  return pointer == nullptr ? nullptr : pointer->get();
}

bool equal_lists(const List& a, const List& b) {
  return a.kind == b.kind && a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

int checked_depth(int depth) {
  if (depth > kValueDepthMax)
    throw JinjaError(absl::StrCat("a value nested more than ", kValueDepthMax, " levels deep"));
  return depth;
}

int64_t checked_weight(int64_t weight) {
  if (weight > kValueWeightMax)
    throw JinjaError(absl::StrCat("a value of more than ", kValueWeightMax, " parts"));
  return weight;
}

void check_namespace_field(std::string_view name) {
  if (name.starts_with('_'))
    throw JinjaError(absl::StrCat("a namespace's field must not begin with '_': ", to_absl(clipped(name))));
}

Value Object::call(Runtime&, Arguments&) {
  throw JinjaError("'" + type_name() + "' object is not callable");
}

bool Object::attribute(Runtime&, std::string_view, Value&) {
  return false;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

const List* Value::list() const {
  return get_pointer<const List>(data_);
}
const Dict* Value::dict() const {
  return get_pointer<const Dict>(data_);
}
Namespace* Value::space() const {
  auto* space = std::get_if<Namespace*>(&data_);
  return space == nullptr ? nullptr : *space;
}
Generator* Value::generator() const {
  return get_pointer<Generator>(data_);
}
Object* Value::object() const {
  return get_pointer<Object>(data_);
}

const WideInteger* wide_integer(const Value& value) {
  return dynamic_cast<const WideInteger*>(value.object());
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return is_float() ? number() != 0 : integer() != 0;
  if (is_string()) return !text().empty();
  if (const List* items = list()) return !items->items.empty();
  if (const Dict* entries = dict()) return !entries->entries.empty();
  return true;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return is_markup() ? "Markup" : "str";
  if (const List* items = list()) {
    constexpr const char* kNames[] = {"list", "tuple", "range", "dict_items", "dict_keys", "dict_values"};
    return kNames[static_cast<size_t>(items->kind)];
  }
  if (dict() != nullptr) return "dict";
  if (space() != nullptr) return "Namespace";
  if (const Generator* items = generator()) return items->name;
  return object()->type_name();
}

int Value::depth() const {
  if (const List* items = list()) return items->depth;
  if (const Dict* entries = dict()) return entries->depth;
  if (const Generator* items = generator()) return items->depth;
  return object() == nullptr ? 0 : object()->depth();
}

int64_t Value::weight() const {
  if (const List* items = list()) return items->weight;
  if (const Dict* entries = dict()) return entries->weight;
  if (const Generator* items = generator()) return items->weight;
  return 1;
}

bool is_hashable(const Value& value) {
  const List* list = value.list();
  if (list == nullptr) return value.dict() == nullptr;
  charge_read(kPartBytes * list->items.size());
  return is_hashable_kind(list->kind) && std::all_of(list->items.begin(), list->items.end(), is_hashable);
}

List::List(std::vector<Value> values, ListKind list_kind) : items(std::move(values)), kind(list_kind) {
  for (const Value& item : items) {
    depth = std::max(depth, checked_depth(item.depth() + 1));
    weight = checked_weight(weight + item.weight());
  }
}

void Dict::set(const Value& key, Value value) {
  depth = std::max({depth, checked_depth(value.depth() + 1), checked_depth(key.depth() + 1)});
  auto [it, is_new] = index_.try_emplace(key_text(key), entries.size());
  if (is_new) {
    charge_made(it->first.size());
    weight = checked_weight(weight + value.weight() + key.weight());
    entries.emplace_back(key, std::move(value));
  } else {
    weight = checked_weight(weight + value.weight() - entries[it->second].second.weight());
    entries[it->second].second = std::move(value);
  }
}

const Value* Dict::find(const Value& key) const {
  auto it = index_.find(key_text(key));
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

const Value* Dict::find(std::string_view key) const {
  charge_read(kPartBytes + key.size());
  auto it = index_.find(absl::StrCat("s", to_absl(key)));
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

Value make_list(std::vector<Value> items, ListKind kind) {
  return std::make_shared<const List>(std::move(items), kind);
}

Value make_dict(Dict dict) {
  return std::make_shared<const Dict>(std::move(dict));
}

Value make_generator(std::vector<Value> items, std::string name) {
  auto generator = std::make_shared<Generator>();
  for (const Value& item : items) {
    generator->depth = std::max(generator->depth, checked_depth(item.depth() + 1));
    generator->weight = checked_weight(generator->weight + item.weight());
  }
  generator->items = std::move(items);
  generator->name = std::move(name);
  return Value(std::move(generator));
}

bool equal(const Value& a, const Value& b) {
  charge_read(kPartBytes);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    if (a.is_integer_like() && b.is_integer_like()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() != b.text().size()) return false;
    charge_read(a.text().size());
    return a.text() == b.text();
  }
  if (a.list() != nullptr && b.list() != nullptr)
    return a.list() == b.list() || equal_lists(*a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr)
    return a.dict() == b.dict() || equal_dicts(*a.dict(), *b.dict());
  if (a.space() != nullptr) return a.space() == b.space();
  if (a.generator() != nullptr) return a.generator() == b.generator();
  if (wide_integer(a) != nullptr && wide_integer(b) != nullptr)
    return wide_integer(a)->digits() == wide_integer(b)->digits();
  return a.object() != nullptr && a.object() == b.object();
}

bool less(const Value& a, const Value& b) {
  charge_read(kPartBytes);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer_like() && b.is_integer_like()) return a.integer() < b.integer();
    return a.number() < b.number();
  }
  // UTF-8's byte order is the order of code points.
  if (a.is_string() && b.is_string()) {
    charge_read(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  bool ordered = a.list() != nullptr && a.list()->kind <= ListKind::kTuple;
  if (ordered && b.list() != nullptr && a.list()->kind == b.list()->kind) {
    const auto& left = a.list()->items;
    const auto& right = b.list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  require_defined(a);
  require_defined(b);
  throw JinjaError("'<' not supported between instances of '" + a.type_name() + "' and '" + b.type_name() +
                   "'");
}

}  // namespace troupe::jinja
