#pragma once

// The values a template works on, with Python's meaning: what is true, what is equal, what prints how. Values
// are cheap to copy and immutable, except namespaces. Anything wrong throws JinjaError, which never leaves
// this folder: ChatTemplate turns it into a Status.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace troupe::jinja {

// Inside the interpreter an error may arise thirty calls deep in any expression; as an exception it costs
// nothing where nothing is wrong. `line` is filled in by the innermost node that has one.
struct JinjaError : std::runtime_error {
  explicit JinjaError(const std::string& message, int line_number = 0)
      : std::runtime_error(message), line(line_number) {}
  int line;
};

class Value;
class Runtime;
struct List;
struct Dict;
struct Namespace;
struct Generator;
struct Arguments;

struct None {};
// What a missing variable, key or attribute is. It prints as nothing, is false and empty; any other use of it
// is the error `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
// `markup`: came from |safe or |escape. Joining plain text to it by + escapes the plain text.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool markup = false;
};

// Anything else: macros, functions, bound methods, loop, cycler, joiner.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual bool is_callable() const { return false; }
  // How deep containers are nested in what it holds.
  virtual int depth() const { return 0; }
  virtual Value call(Runtime& runtime, Arguments& arguments);
  // Undefined (the C++ kind: no value) where there is no such attribute.
  virtual bool attribute(Runtime& runtime, std::string_view name, Value& result);
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<Generator>,
                            std::shared_ptr<Object>>;

  Value() = default;  // undefined
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(static_cast<int64_t>(value)) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text, bool markup = false)
      : data_(Text{std::make_shared<const std::string>(std::move(text)), markup}) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(Namespace* space) : data_(space) {}
  Value(std::shared_ptr<Generator> generator) : data_(std::move(generator)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value undefined(std::string why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integer_like() const { return is_bool() || is_int(); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_markup() const { return is_string() && std::get<Text>(data_).markup; }

  // nullptr / false where the value is of another kind.
  const List* list() const;
  const Dict* dict() const;
  Namespace* space() const;
  Generator* generator() const;
  Object* object() const;
  // REQUIRES: the kind.
  const std::string& text() const { return *std::get<Text>(data_).bytes; }
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const Undefined& as_undefined() const { return std::get<Undefined>(data_); }

  bool truthy() const;
  // Python's type name: "str", "NoneType", …
  std::string type_name() const;
  // How deep containers are nested in it; bounded, so that walking or freeing a value cannot exhaust the
  // stack.
  int depth() const;
  // How many parts a walk over it meets: shared ones count each time.
  int64_t weight() const;

 private:
  Data data_;
};

enum class ListKind : uint8_t { kList, kTuple, kRange, kItems, kKeys, kValues };

struct List {
  explicit List(std::vector<Value> values, ListKind list_kind = ListKind::kList);
  std::vector<Value> items;
  ListKind kind;
  bool is_group = false;  // a tuple of groupby, whose items are also .grouper and .list
  int depth = 1;
  int64_t weight = 1;
};

// In the order of insertion; a key set again keeps its place.
struct Dict {
  void set(const Value& key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  int64_t weight = 1;

 private:
  absl::flat_hash_map<std::string, size_t> index_;
};

// The one mutable thing. Owned by the Runtime: namespaces may hold each other.
struct Namespace {
  Dict fields;
};

// What Python's lazy filters answer: can be walked once, is always true, has no length.
struct Generator {
  std::vector<Value> items;
  int depth = 1;
  int64_t weight = 1;
  bool used = false;
  std::string name = "generator";
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

Value make_list(std::vector<Value> items, ListKind kind = ListKind::kList);
Value make_dict(Dict dict);
Value make_generator(std::vector<Value> items, std::string name = "generator");

// May it be a key of a Dict? Lists, dicts and their views may not, nor a tuple that holds one.
bool is_hashable(const Value& value);
// Python's == ; never an error but the meter's.
bool equal(const Value& a, const Value& b);
// Python's < ; a JinjaError for kinds that have no order between them.
bool less(const Value& a, const Value& b);

inline constexpr int kValueDepthMax = 100;
inline constexpr int64_t kValueWeightMax = 1'000'000;
// Throw beyond kValueDepthMax and kValueWeightMax: whatever walks a value ends, and soon.
int checked_depth(int depth);
int64_t checked_weight(int64_t weight);
// Jinja's sandbox, as Hugging Face sets it up, keeps names that begin with '_' out of namespaces.
void check_namespace_field(std::string_view name);

}  // namespace troupe::jinja
