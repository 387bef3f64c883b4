#pragma once

// The values of a template, with Python's truth, equality and printing. Values are cheap to copy and
// immutable, except namespaces. Errors throw JinjaError, which never leaves this folder: ChatTemplate
// converts it to a Status.

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

// An error may arise thirty calls deep in any expression; as an exception it costs nothing without an error.
// The innermost node that has a `line` fills it in.
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
// The value of a missing variable, key or attribute. It prints as nothing, is false and empty; any other use
// of it is the error `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
// `markup`: comes from |safe or |escape. Joining plain text to it by + escapes the plain text.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool markup = false;
};

// All other kinds: macros, functions, bound methods, loop, cycler, joiner.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual bool is_callable() const { return false; }
  // Nesting depth of the containers it holds.
  virtual int depth() const { return 0; }
  virtual Value call(Runtime& runtime, Arguments& arguments);
  // Returns false if there is no such attribute.
  virtual bool attribute(Runtime& runtime, std::string_view name, Value& result);
};

// An integer beyond 64 bits: printed as it came and equal to itself, but nothing is computed with it.
class WideInteger final : public Object {
 public:
  explicit WideInteger(std::string digits) : digits_(std::move(digits)) {}
  const std::string& digits() const { return digits_; }
  std::string type_name() const override { return "int"; }

 private:
  const std::string digits_;  // after a minus, perhaps
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

  // nullptr / false if the value is of another kind.
  const List* list() const;
  const Dict* dict() const;
  Namespace* space() const;
  Generator* generator() const;
  Object* object() const;
  // REQUIRES: a value of that kind.
  const std::string& text() const { return *std::get<Text>(data_).bytes; }
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  const Undefined& as_undefined() const { return std::get<Undefined>(data_); }

  bool truthy() const;
  // Returns Python's type name: "str", "NoneType", …
  std::string type_name() const;
  // Nesting depth of its containers; bounded, so that walking or freeing a value cannot exhaust the stack.
  int depth() const;
  // Number of parts that a walk visits: shared ones count each time.
  int64_t weight() const;

 private:
  Data data_;
};

enum class ListKind : uint8_t { kList, kTuple, kRange, kItems, kKeys, kValues };

struct List {
  explicit List(std::vector<Value> values, ListKind list_kind = ListKind::kList);
  std::vector<Value> items;
  ListKind kind;
  bool is_group = false;  // a groupby tuple, whose items are also .grouper and .list
  int depth = 1;
  int64_t weight = 1;
};

// Entries in order of insertion; setting a key again keeps its place.
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

// The only mutable value. Owned by the Runtime: namespaces may hold each other.
struct Namespace {
  Dict fields;
};

// The result of Python's lazy filters: iterable once, always true, without a length.
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

// Null if the value is none.
const WideInteger* wide_integer(const Value& value);

Value make_list(std::vector<Value> items, ListKind kind = ListKind::kList);
Value make_dict(Dict dict);
Value make_generator(std::vector<Value> items, std::string name = "generator");

// Whether a Dict accepts it as a key. Lists, dicts, their views, and tuples that hold one are not hashable.
bool is_hashable(const Value& value);
// Python's == ; its only error is the meter's.
bool equal(const Value& a, const Value& b);
// Python's < ; a JinjaError for kinds without an order between them.
bool less(const Value& a, const Value& b);

inline constexpr int kValueDepthMax = 100;
inline constexpr int64_t kValueWeightMax = 1'000'000;
// Throw beyond kValueDepthMax and kValueWeightMax, so that every walk over a value is short.
int checked_depth(int depth);
int64_t checked_weight(int64_t weight);
// Refuses names that begin with '_', as Jinja's sandbox under Hugging Face's settings does.
void check_namespace_field(std::string_view name);

}  // namespace troupe::jinja
