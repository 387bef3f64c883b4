#pragma once

// The filters, tests, methods and global functions templates may call: what Jinja2 and Hugging Face's
// settings offer, by Python's meaning. Unsupported ones are refused by name.

#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);

// value.name, for what Python's types offer (bound methods); false: there is no such attribute.
bool find_method(const Value& value, std::string_view name, Value& result);
// A function every template can call; false: there is none of this name.
bool find_global(std::string_view name, Value& result);

}  // namespace troupe::jinja
