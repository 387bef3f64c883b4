// Functions available to every template: Jinja's own and those Hugging Face adds.

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "worker/text/jinja/filters.h"
#include "worker/text/jinja/function.h"
#include "worker/text/jinja/runtime.h"
#include "worker/text/jinja/text.h"

namespace troupe::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // the sandbox's own bound

Value call_range(Runtime& runtime, Arguments& arguments) {
  Bound bound("range", arguments, {"start", "stop", "step"});
  bound.required(0);
  int64_t start = bound.has(1) ? bound.integer(0, 0) : 0;
  int64_t stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  int64_t step = bound.integer(2, 1);
  if (step == 0) throw JinjaError("range() arg 3 must not be zero");
  std::vector<Value> items;
  int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      throw JinjaError(absl::StrCat("range() of more than ", kRangeMax, " numbers"));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  runtime.step(static_cast<int64_t>(items.size()));
  return make_list(std::move(items), ListKind::kRange);
}

Dict fields_of(Runtime& runtime, Arguments& arguments, const char* function) {
  Dict fields;
  if (arguments.positional.size() > 1)
    throw JinjaError(absl::StrCat(function, "() takes at most one positional argument"));
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) {
      for (const auto& [key, value] : source.dict()->entries) {
        runtime.step();
        fields.set(key, value);
      }
    } else {
      for (const Value& item : runtime.iterate(source)) {
        std::vector<Value> pair = runtime.iterate(item);
        if (pair.size() != 2)
          throw JinjaError(absl::StrCat(function, "() takes a mapping or a list of pairs"));
        fields.set(pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) fields.set(Value(name), value);
  return fields;
}

Value call_dict(Runtime& runtime, Arguments& arguments) {
  return make_dict(fields_of(runtime, arguments, "dict"));
}

Value call_namespace(Runtime& runtime, Arguments& arguments) {
  Dict fields = fields_of(runtime, arguments, "namespace");
  for (const auto& [name, value] : fields.entries) {
    if (name.is_string()) check_namespace_field(name.text());
  }
  return runtime.make_namespace(std::move(fields));
}

Value call_raise_exception(Runtime&, Arguments& arguments) {
  Bound bound("raise_exception", arguments, {"message"});
  // A template's error message, which may quote a client's text, goes into an answer and the log.
  constexpr size_t kBytesMax = 1000;
  throw JinjaError(std::string(clipped(to_text(bound.required(0)), kBytesMax)));
}

// Returns its items in turn.
class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(make_list(std::move(items), ListKind::kTuple)) {}
  std::string type_name() const override { return "Cycler"; }
  int depth() const override { return items_.depth(); }
  bool attribute(Runtime&, std::string_view name, Value& result) override {
    if (name == "current") {
      result = items_.list()->items[at_];
    } else if (name == "pos") {
      result = Value(static_cast<int64_t>(at_));
    } else if (name == "items") {
      result = items_;
    } else if (name == "next") {
      result = make_function(
          "next",
          [self = shared_from_this()](Runtime&, Arguments& arguments) {
            Bound bound("next", arguments, {});
            const auto& items = self->items_.list()->items;
            return items[std::exchange(self->at_, (self->at_ + 1) % items.size())];
          },
          depth() + 1);
    } else if (name == "reset") {
      result = make_function(
          "reset",
          [self = shared_from_this()](Runtime&, Arguments& arguments) {
            Bound bound("reset", arguments, {});
            self->at_ = 0;
            return Value(None{});
          },
          depth() + 1);
    } else {
      return false;
    }
    return true;
  }

 private:
  Value items_;
  size_t at_ = 0;
};

Value call_cycler(Runtime&, Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.empty())
    throw JinjaError("cycler(): at least one item has to be provided");
  return Value(std::static_pointer_cast<Object>(std::make_shared<Cycler>(arguments.positional)));
}

// Returns nothing at the first call, its separator from then on.
Value call_joiner(Runtime&, Arguments& arguments) {
  Bound bound("joiner", arguments, {"sep"});
  auto used = std::make_shared<bool>(false);
  return make_function("joiner", [used, separator = bound.value(0, Value(", "))](Runtime&, Arguments& none) {
    Bound no_arguments("joiner", none, {});
    return std::exchange(*used, true) ? separator : Value("");
  });
}

bool read_now(const std::string& now, std::tm& time) {
  if (now.empty()) {
    std::time_t seconds = std::time(nullptr);
    return localtime_r(&seconds, &time) != nullptr;
  }
  const char* end = strptime(now.c_str(), "%Y-%m-%d %H:%M:%S", &time);
  return end != nullptr && *end == '\0';
}

Value call_strftime_now(Runtime& runtime, Arguments& arguments) {
  Bound bound("strftime_now", arguments, {"format"});
  bound.required(0);
  std::string format = bound.text(0, "");
  std::tm time{};
  if (!read_now(runtime.now(), time)) throw JinjaError("'now' must be \"YYYY-MM-DD HH:MM:SS\"");
  if (format.empty()) return Value("");
  if (format.size() > 256) throw JinjaError("strftime_now(): the format is too long");
  char buffer[8192];
  size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &time);
  if (size == 0) throw JinjaError("strftime_now(): the format cannot be used");
  return runtime.text(std::string(buffer, size));
}

}  // namespace

bool find_global(std::string_view name, Value& result) {
  constexpr std::pair<std::string_view, Value (*)(Runtime&, Arguments&)> kFunctions[] = {
      {"cycler", call_cycler},
      {"dict", call_dict},
      {"joiner", call_joiner},
      {"namespace", call_namespace},
      {"raise_exception", call_raise_exception},
      {"range", call_range},
      {"strftime_now", call_strftime_now},
  };
  for (const auto& [known, function] : kFunctions) {
    if (known != name) continue;
    result = make_function(std::string(name), function);
    return true;
  }
  return false;
}

}  // namespace troupe::jinja
