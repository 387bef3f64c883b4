#pragma once

// One rendering as filters, functions and methods see it: its limits, and look-ups and calls of values.
// Created for one render() (run.h) and destroyed after it, so that the template's leftovers (namespaces that
// hold each other) live exactly as long. eval.h evaluates expressions, run.h runs statements.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/jinja/meter.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {

struct RuntimeLimits {
  int64_t steps_max = 0;
  size_t output_bytes_max = 0;
};

class Runtime {
 public:
  // `context` are the template's variables; `now` is "YYYY-MM-DD HH:MM:SS", or empty for the system's clock.
  Runtime(const RuntimeLimits& limits, Dict context, std::string now);

  // Charges work other than reading text to this render's meter.
  void step(int64_t count = 1) { meter_.step(count); }
  // Charges a text that is kept: limits its size and the total.
  void charge_text(size_t bytes);
  // Throw if one text, or `count` times `size` bytes of it, would exceed an output's limit.
  void check_text(size_t bytes) const;
  void check_repetition(size_t size, int64_t count) const;
  // Makes a string of the template, charged.
  Value text(std::string bytes, bool markup = false);

  // Returns the items of a for loop, charged as steps. An error if the value is not iterable.
  std::vector<Value> iterate(const Value& value);
  Value call(const Value& callee, Arguments& arguments);
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  // Resolves "a.b.0" by item() for every part, as filters with attribute= do.
  Value path(const Value& value, const Value& attribute);

  Value make_namespace(Dict fields);
  // The template's variable of this name, or null.
  const Value* variable(std::string_view name) const { return context_.find(name); }
  const std::string& now() const { return now_; }
  const RuntimeLimits& limits() const { return limits_; }
  Meter& meter() { return meter_; }
  class Depth;  // depth.h

 private:
  RuntimeLimits limits_;
  Dict context_;
  std::string now_;
  Meter meter_;
  int depth_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

}  // namespace troupe::jinja
