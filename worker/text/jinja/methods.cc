// The methods of Python's str, dict, list and tuple. Methods that change their object are undefined, as in
// the immutable sandbox in which Hugging Face runs templates.

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/text/jinja/filter_table.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"
#include "worker/text/unicode.h"

namespace troupe::jinja {
namespace {

using Method = TextMethod;
using Row = std::pair<std::string_view, Method>;

// Memory of a piece of text besides its bytes.
constexpr size_t kPieceBytes = 64;

Value like(Runtime& runtime, const Value& self, std::string text) {
  return runtime.text(std::move(text), self.is_markup());
}

template <StripSide kSide>
Value str_strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("strip", arguments, {"chars"});
  bool given = bound.has(0) && !bound.required(0).is_none();
  std::string chars = given ? bound.text(0, "") : "";
  std::optional<std::string_view> set;
  if (given) set = chars;
  return like(runtime, self, std::string(strip(self.text(), set, kSide)));
}

// str.split() without a separator: runs of white space separate, and the ends are stripped.
std::vector<std::string> split_space(std::string_view text, int64_t count, bool from_right) {
  charge_characters(text.size());
  std::vector<std::string_view> words;
  for (size_t pos = 0, begin = 0, after = 0; pos <= text.size(); pos = after) {
    after = pos + 1;
    const bool at_end = pos == text.size();
    if (!at_end) after = pos, next_code_point(text, after);
    size_t at = pos;
    if (!at_end && !is_python_space(next_code_point(text, at))) continue;
    if (begin < pos) {
      words.push_back(text.substr(begin, pos - begin));
      charge_made(kPieceBytes);
    }
    begin = after;
  }
  const size_t most = count < 0 ? words.size() : static_cast<size_t>(count);
  std::vector<std::string> parts;
  if (words.size() <= most) {
    parts.assign(words.begin(), words.end());
  } else if (from_right) {
    // The rest keeps the white space at its far end.
    const size_t rest = words.size() - most;
    parts.emplace_back(text.begin(), words[rest - 1].end());
    parts.insert(parts.end(), words.begin() + static_cast<ptrdiff_t>(rest), words.end());
  } else {
    parts.assign(words.begin(), words.begin() + static_cast<ptrdiff_t>(most));
    parts.emplace_back(words[most].begin(), text.end());
  }
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t count) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (count-- != 0) {
    const size_t at = find_text(text, separator, begin);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, at - begin));
    charge_made(kPieceBytes);
    begin = at + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

// Splits from the right: as from the left with everything reversed.
std::vector<std::string> split_last(std::string_view text, std::string_view separator, int64_t count) {
  charge_read(text.size());
  const std::string backwards(text.rbegin(), text.rend());
  std::vector<std::string> parts =
      split_at(backwards, std::string(separator.rbegin(), separator.rend()), count);
  for (std::string& part : parts) std::reverse(part.begin(), part.end());
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kFromRight>
Value str_split(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("split", arguments, {"sep", "maxsplit"});
  int64_t count = bound.integer(1, -1);
  std::vector<std::string> parts;
  if (!bound.has(0) || bound.required(0).is_none()) {
    parts = split_space(self.text(), count, kFromRight);
  } else {
    std::string separator = bound.text(0, "");
    if (separator.empty()) throw JinjaError("empty separator");
    parts = kFromRight ? split_last(self.text(), separator, count) : split_at(self.text(), separator, count);
  }
  std::vector<Value> values;
  for (std::string& part : parts) values.push_back(like(runtime, self, std::move(part)));
  runtime.step(static_cast<int64_t>(values.size()));
  return make_list(std::move(values));
}

Value str_splitlines(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("splitlines", arguments, {"keepends"});
  std::vector<Value> lines;
  for (std::string_view line : split_lines(self.text(), bound.flag(0, false))) {
    lines.push_back(like(runtime, self, std::string(line)));
  }
  runtime.step(static_cast<int64_t>(lines.size()));
  return make_list(std::move(lines));
}

template <bool kAtEnd>
Value str_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound(kAtEnd ? "endswith" : "startswith", arguments, {"prefix"});
  std::vector<Value> candidates{bound.required(0)};
  if (const List* tuple = bound.required(0).list(); tuple != nullptr && tuple->kind == ListKind::kTuple) {
    runtime.step(static_cast<int64_t>(tuple->items.size()));
    candidates = tuple->items;
  }
  const std::string& text = self.text();
  for (const Value& candidate : candidates) {
    require_defined(candidate);
    if (!candidate.is_string())
      throw JinjaError("startswith and endswith take a string or a tuple of strings");
    const std::string& affix = candidate.text();
    charge_read(affix.size());
    if (kAtEnd ? text.ends_with(affix) : text.starts_with(affix)) return Value(true);
  }
  return Value(false);
}

template <bool kAtEnd>
Value str_remove_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound(kAtEnd ? "removesuffix" : "removeprefix", arguments, {"affix"});
  std::string affix = (bound.required(0), bound.text(0, ""));
  std::string text = self.text();
  if (kAtEnd && text.ends_with(affix)) text.resize(text.size() - affix.size());
  if (!kAtEnd && text.starts_with(affix)) text.erase(0, affix.size());
  return like(runtime, self, std::move(text));
}

template <std::string (*kConvert)(std::string_view)>
Value str_case(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("upper, lower, title or capitalize", arguments, {});
  return like(runtime, self, kConvert(self.text()));
}

Value str_replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"});
  bound.required(0);
  bound.required(1);
  return like(
      runtime, self,
      replace_text(runtime, {self.text(), bound.text(0, ""), bound.text(1, "")}, bound.integer(2, -1)));
}

// Implements find() and its variants: the match as an index of code points, or -1.
template <bool kFromRight, bool kMustExist>
Value str_find(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("find", arguments, {"sub", "start", "end"});
  bound.required(0);
  std::string needle = bound.text(0, "");
  int64_t size = length(self);
  SliceBounds bounds{bound.integer(1, 0), bound.integer(2, size), std::nullopt};
  int64_t start = *bounds.start < 0 ? std::max<int64_t>(*bounds.start + size, 0) : *bounds.start;
  Value part = slice(runtime, self, bounds);
  size_t at = start > size ? std::string::npos
              : kFromRight ? find_last_text(part.text(), needle)
                           : find_text(part.text(), needle, 0);
  if (at == std::string::npos) {
    if (kMustExist) throw JinjaError("substring not found");
    return Value(-1);
  }
  return Value(start + static_cast<int64_t>(count_code_points(std::string_view(part.text()).substr(0, at))));
}

Value str_count(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("count", arguments, {"sub"});
  bound.required(0);
  std::string needle = bound.text(0, "");
  if (needle.empty()) return Value(length(self) + 1);
  int64_t count = 0;
  for (size_t at = find_text(self.text(), needle, 0); at != std::string::npos;
       at = find_text(self.text(), needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

Value str_join(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("join", arguments, {"iterable"});
  std::vector<std::string> texts;
  for (const Value& item : runtime.iterate(bound.required(0))) {
    require_defined(item);
    if (!item.is_string()) {
      throw JinjaError(absl::StrCat("sequence item ", texts.size(), ": expected str instance, ",
                                    item.type_name(), " found"));
    }
    texts.push_back(item.text());
    runtime.charge_text(item.text().size());
  }
  return like(runtime, self, join_texts(runtime, texts, self.text()));
}

template <bool (*kHolds)(char32_t)>
Value str_all(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("isdigit, isspace or isalpha", arguments, {});
  const std::string& text = self.text();
  charge_characters(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!kHolds(next_code_point(text, pos))) return Value(false);
  }
  return Value(!text.empty());
}

Value dict_list(Runtime& runtime, const Value& self, ListKind kind) {
  std::vector<Value> items;
  runtime.step(static_cast<int64_t>(self.dict()->entries.size()));
  for (const auto& [key, value] : self.dict()->entries) {
    if (kind == ListKind::kItems) {
      items.push_back(make_list({key, value}, ListKind::kTuple));
    } else {
      items.push_back(kind == ListKind::kKeys ? key : value);
    }
  }
  return make_list(std::move(items), kind);
}

template <ListKind kKind>
Value dict_view(Runtime& runtime, const Value& self, Arguments& arguments) {
  Bound bound("items, keys or values", arguments, {});
  return dict_list(runtime, self, kKind);
}

Value dict_get(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("get", arguments, {"key", "default"});
  const Value* found = self.dict()->find(bound.required(0));
  return found != nullptr ? *found : bound.value(1, Value(None{}));
}

Value copy_self(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("copy", arguments, {});
  return self;
}

Value list_count(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("count", arguments, {"value"});
  const auto& items = self.list()->items;
  return Value(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, bound.required(0)); })));
}

Value list_index(Runtime&, const Value& self, Arguments& arguments) {
  Bound bound("index", arguments, {"value"});
  const auto& items = self.list()->items;
  auto it = std::find_if(items.begin(), items.end(),
                         [&](const Value& item) { return equal(item, bound.required(0)); });
  if (it == items.end()) throw JinjaError("the value is not in the list");
  return Value(static_cast<int64_t>(it - items.begin()));
}

// Python has these methods and published templates do not use them: found, but refused by name when called.
Value refuse_unsupported(Runtime&, const Value& self, Arguments&) {
  throw JinjaError("this method of " + self.type_name() + " is not supported");
}

constexpr Row kTextMethods[] = {
    {"capitalize", str_case<capitalize>},
    {"count", str_count},
    {"endswith", str_affix<true>},
    {"find", str_find<false, false>},
    {"index", str_find<false, true>},
    {"isalpha", str_all<is_letter>},
    {"isdigit", str_all<is_decimal_digit>},
    {"isspace", str_all<is_python_space>},
    {"join", str_join},
    {"lower", str_case<to_lower>},
    {"lstrip", str_strip<StripSide::kLeft>},
    {"removeprefix", str_remove_affix<false>},
    {"removesuffix", str_remove_affix<true>},
    {"replace", str_replace},
    {"rfind", str_find<true, false>},
    {"rindex", str_find<true, true>},
    {"rsplit", str_split<true>},
    {"rstrip", str_strip<StripSide::kRight>},
    {"split", str_split<false>},
    {"splitlines", str_splitlines},
    {"startswith", str_affix<false>},
    {"strip", str_strip<StripSide::kBoth>},
    {"title", str_case<title>},
    {"upper", str_case<to_upper>},
    {"encode", refuse_unsupported},
    {"isnumeric", refuse_unsupported},
    {"maketrans", refuse_unsupported},
    {"translate", refuse_unsupported},
};

constexpr Row kDictMethods[] = {
    {"copy", copy_self},
    {"get", dict_get},
    {"items", dict_view<ListKind::kItems>},
    {"keys", dict_view<ListKind::kKeys>},
    {"values", dict_view<ListKind::kValues>},
};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

constexpr Row kListMethods[] = {{"copy", copy_self}, {"count", list_count}, {"index", list_index}};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

constexpr Row kTupleMethods[] = {{"count", list_count}, {"index", list_index}};

template <size_t kSize>
Method find_row(const Row (&rows)[kSize], std::string_view name) {
  auto it = std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return row.first == name; });
  return it == std::end(rows) ? nullptr : it->second;
}

bool is_change(const Value& value, std::string_view name) {
  const auto among = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (value.dict() != nullptr) return among(kDictChanges);
  return value.list() != nullptr && value.list()->kind == ListKind::kList && among(kListChanges);
}

bool bind_method(Method method, const Value& self, std::string_view name, Value& result) {
  if (method == nullptr) return false;
  auto body = [method, self](Runtime& runtime, Arguments& arguments) {
    if (self.is_string()) charge_read(self.text().size());
    if (self.list() != nullptr) runtime.step(self.weight() / 8);
    return method(runtime, self, arguments);
  };
  result = make_function(std::string(name), std::move(body), self.depth() + 1);
  return true;
}

}  // namespace

bool find_method(const Value& value, std::string_view name, Value& result) {
  if (is_change(value, name)) {
    result = Value::undefined("templates must not change a " + value.type_name() +
                              "; make a new one, as in a + [b]");
    return true;
  }
  Method method = nullptr;
  if (value.is_string()) {
    method = find_row(kTextMethods, name);
    if (method == nullptr) method = find_layout_method(name);
  } else if (value.dict() != nullptr) {
    method = find_row(kDictMethods, name);
  } else if (const List* list = value.list()) {
    if (list->kind == ListKind::kList) method = find_row(kListMethods, name);
    if (list->kind == ListKind::kTuple) method = find_row(kTupleMethods, name);
  }
  return bind_method(method, value, name, result);
}

}  // namespace troupe::jinja
