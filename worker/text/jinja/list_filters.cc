// Filters that iterate over their input.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/text/jinja/filter_table.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/operators.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

// Jinja's default for sorting and comparing: strings without regard to case.
Value without_case(Runtime& runtime, const Value& value) {
  return value.is_string() ? runtime.text(to_lower(value.text())) : value;
}

// Returns an item's key: its attribute, if one is named.
Value key_of(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  Value key = attribute.is_none() ? item : runtime.path(item, attribute);
  return case_sensitive ? key : without_case(runtime, key);
}

// Returns the key for "a,b": a list of both.
Value keys_of(Runtime& runtime, const Value& item, const std::string& attributes, bool case_sensitive) {
  charge_read(attributes.size());
  std::vector<Value> keys;
  for (absl::string_view attribute : absl::StrSplit(attributes, ',')) {
    keys.push_back(key_of(runtime, item, Value(std::string(attribute)), case_sensitive));
  }
  return make_list(std::move(keys));
}

std::vector<size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    runtime.step();
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  return order;
}

Value filter_join(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("join", arguments, {"d", "attribute"});
  Value attribute = bound.value(1, Value(None{}));
  std::vector<std::string> texts;
  for (const Value& item : runtime.iterate(input)) {
    texts.push_back(to_text(attribute.is_none() ? item : runtime.path(item, attribute)));
    runtime.charge_text(texts.back().size());
  }
  return runtime.text(join_texts(runtime, texts, to_text(bound.value(0, Value("")))));
}

Value filter_first(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("first", arguments, {});
  std::vector<Value> items = runtime.iterate(input);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value filter_last(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("last", arguments, {});
  std::vector<Value> items = runtime.iterate(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("list", arguments, {});
  return make_list(runtime.iterate(input));
}

std::vector<Value> pairs_of(Runtime& runtime, const Dict& dict) {
  std::vector<Value> pairs;
  runtime.step(static_cast<int64_t>(dict.entries.size()));
  for (const auto& [key, value] : dict.entries) pairs.push_back(make_list({key, value}, ListKind::kTuple));
  return pairs;
}

Value filter_items(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("items", arguments, {});
  if (input.is_undefined()) return make_generator({});
  if (input.dict() == nullptr) throw JinjaError("Can only get item pairs from a mapping.");
  return make_generator(pairs_of(runtime, *input.dict()));
}

Value filter_dictsort(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  require_defined(input);
  if (input.dict() == nullptr) throw JinjaError("dictsort(): a mapping is needed, not " + input.type_name());
  std::string by = bound.text(1, "key");
  if (by != "key" && by != "value")
    throw JinjaError("dictsort(): You can only sort by either 'key' or 'value'");
  std::vector<Value> pairs = pairs_of(runtime, *input.dict());
  std::vector<Value> keys;
  for (const auto& [key, value] : input.dict()->entries) {
    keys.push_back(key_of(runtime, by == "key" ? key : value, Value(None{}), bound.flag(0, false)));
  }
  std::vector<Value> sorted;
  for (size_t i : sorted_order(runtime, keys, bound.flag(2, false))) sorted.push_back(pairs[i]);
  return make_list(std::move(sorted));
}

Value filter_sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Value attribute = bound.value(2, Value(None{}));
  std::vector<Value> items = runtime.iterate(input);
  std::vector<Value> keys;
  const bool several = attribute.is_string() && attribute.text().find(',') != std::string::npos;
  for (const Value& item : items) {
    keys.push_back(several ? keys_of(runtime, item, attribute.text(), bound.flag(1, false))
                           : key_of(runtime, item, attribute, bound.flag(1, false)));
  }
  std::vector<Value> sorted;
  for (size_t i : sorted_order(runtime, keys, bound.flag(0, false))) sorted.push_back(items[i]);
  return make_list(std::move(sorted));
}

// Sorts by the attribute, then collects runs of equal keys, as the sandbox defines both.
Value filter_groupby(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const Value& attribute = bound.required(0);
  const bool case_sensitive = bound.flag(2, false);
  std::vector<Value> items = runtime.iterate(input);
  std::vector<Value> names, keys;
  for (const Value& item : items) {
    Value name = runtime.path(item, attribute);
    if (name.is_undefined()) name = bound.value(1, name);
    keys.push_back(case_sensitive ? name : without_case(runtime, name));
    names.push_back(std::move(name));
  }
  std::vector<size_t> order = sorted_order(runtime, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::vector<Value> members;
    for (; end < order.size() && equal(keys[order[begin]], keys[order[end]]); ++end) {
      members.push_back(items[order[end]]);
    }
    auto group = std::make_shared<List>(
        std::vector<Value>{names[order[begin]], make_list(std::move(members))}, ListKind::kTuple);
    group->is_group = true;
    groups.emplace_back(std::shared_ptr<const List>(std::move(group)));
  }
  return make_list(std::move(groups));
}

// Cuts into this many lists, the first ones longer by one if it does not come out even.
Value filter_slice(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("slice", arguments, {"slices", "fill_with"});
  bound.required(0);
  const int64_t count = bound.integer(0, 1);
  if (count == 0) throw JinjaError("slice(): integer division or modulo by zero");
  std::vector<Value> items = runtime.iterate(input);
  const auto size = static_cast<int64_t>(items.size());
  const Value fill = bound.value(1, Value(None{}));
  std::vector<Value> slices;
  for (int64_t i = 0, at = 0; i < count; ++i) {
    runtime.step();
    const bool longer = i < size % count;
    const int64_t end = at + size / count + (longer ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + end);
    if (!fill.is_none() && !longer) part.push_back(fill);
    slices.push_back(make_list(std::move(part)));
    at = end;
  }
  return make_generator(std::move(slices));
}

Value filter_reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("reverse", arguments, {});
  if (input.is_string()) return slice(runtime, input, {std::nullopt, std::nullopt, -1});
  std::vector<Value> items = runtime.iterate(input);
  std::reverse(items.begin(), items.end());
  return make_generator(std::move(items), "list_reverseiterator");
}

Value filter_unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> items;
  for (const Value& item : runtime.iterate(input)) {
    Value key = key_of(runtime, item, bound.value(1, Value(None{})), bound.flag(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value(true));
    items.push_back(item);
  }
  return make_generator(std::move(items));
}

Value extreme(Runtime& runtime, const Value& input, Arguments& arguments, bool largest) {
  Bound bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> items = runtime.iterate(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  auto key = [&](const Value& item) {
    return key_of(runtime, item, bound.value(1, Value(None{})), bound.flag(0, false));
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    bool better = largest ? less(key(items[best]), key(items[i])) : less(key(items[i]), key(items[best]));
    if (better) best = i;
  }
  return items[best];
}

Value filter_min(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, false);
}

Value filter_max(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, true);
}

Value filter_sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.value(1, Value(0));
  Value attribute = bound.value(0, Value(None{}));
  for (const Value& item : runtime.iterate(input)) {
    total = binary(runtime, "+", total, attribute.is_none() ? item : runtime.path(item, attribute));
  }
  return total;
}

Value filter_batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("batch", arguments, {"linecount", "fill_with"});
  bound.required(0);
  int64_t size = bound.integer(0, 1);
  if (size < 1) throw JinjaError("batch(): linecount must be at least 1");
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : runtime.iterate(input)) {
    if (batch.size() == static_cast<size_t>(size)) batches.push_back(make_list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    Value fill = bound.value(1, Value(None{}));
    while (!fill.is_none() && batch.size() < static_cast<size_t>(size)) {
      runtime.step();
      batch.push_back(fill);
    }
    batches.push_back(make_list(std::move(batch)));
  }
  return make_generator(std::move(batches));
}

// Takes the first argument, the name of a filter or test; the rest are that one's arguments.
std::string take_name(std::string_view function, Arguments& arguments) {
  bool named = !arguments.positional.empty() && arguments.positional[0].is_string();
  if (!named) throw JinjaError(absl::StrCat(std::string(function), "(): the first argument must be a name"));
  std::string name = arguments.positional[0].text();
  arguments.positional.erase(arguments.positional.begin());
  return name;
}

// map and select iterate over nothing where Python's "if seq" is false: none counts as an empty list.
std::vector<Value> iterate_if_any(Runtime& runtime, const Value& input) {
  return input.truthy() ? runtime.iterate(input) : std::vector<Value>();
}

Value map_attribute(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound bound("map", arguments, {"attribute", "default"});
  std::vector<Value> items;
  for (const Value& item : iterate_if_any(runtime, input)) {
    Value value = runtime.path(item, bound.required(0));
    items.push_back(value.is_undefined() ? bound.value(1, value) : value);
  }
  return make_generator(std::move(items));
}

Value filter_map(Runtime& runtime, const Value& input, Arguments& arguments) {
  bool by_attribute = arguments.positional.empty() && !arguments.named.empty();
  if (by_attribute) return map_attribute(runtime, input, arguments);
  std::string name = take_name("map", arguments);
  std::vector<Value> items;
  for (const Value& item : iterate_if_any(runtime, input)) {
    Arguments copy = arguments;
    items.push_back(apply_filter(runtime, name, item, copy));
  }
  return make_generator(std::move(items));
}

struct Selection {
  std::string_view name;
  bool by_attribute;
  bool keep;  // true: keep what passes the test; false: the rest
};

Value select(Runtime& runtime, const Value& input, Arguments& arguments, const Selection& selection) {
  Value attribute;
  if (selection.by_attribute) {
    if (arguments.positional.empty())
      throw JinjaError(absl::StrCat(std::string(selection.name), "(): an attribute is needed"));
    attribute = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  bool by_truth = arguments.positional.empty();
  std::string test = by_truth ? "" : take_name(selection.name, arguments);
  std::vector<Value> items;
  for (const Value& item : iterate_if_any(runtime, input)) {
    Value value = selection.by_attribute ? runtime.path(item, attribute) : item;
    Arguments copy = arguments;
    bool passes = by_truth ? value.truthy() : apply_test(runtime, test, value, copy);
    if (passes == selection.keep) items.push_back(item);
  }
  return make_generator(std::move(items));
}

Value filter_select(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select(runtime, input, arguments, {"select", false, true});
}
Value filter_reject(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select(runtime, input, arguments, {"reject", false, false});
}
Value filter_selectattr(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select(runtime, input, arguments, {"selectattr", true, true});
}
Value filter_rejectattr(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select(runtime, input, arguments, {"rejectattr", true, false});
}

}  // namespace

std::string join_texts(Runtime& runtime, const std::vector<std::string>& texts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out += separator;
    out += texts[i];
    runtime.check_text(out.size());
  }
  return out;
}

const absl::flat_hash_map<std::string_view, FilterFunction>& list_filters() {
  static const auto* const kTable = new absl::flat_hash_map<std::string_view, FilterFunction>{
      {"batch", filter_batch},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"groupby", filter_groupby},
      {"slice", filter_slice},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"list", filter_list},
      {"map", filter_map},
      {"max", filter_max},
      {"min", filter_min},
      {"reject", filter_reject},
      {"rejectattr", filter_rejectattr},
      {"reverse", filter_reverse},
      {"select", filter_select},
      {"selectattr", filter_selectattr},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
  return *kTable;
}

}  // namespace troupe::jinja
