#pragma once

// The filters, tests, methods and global functions that templates may call: those of Jinja2 and Hugging
// Face's settings, with Python's meaning. Unsupported ones are refused by name.

#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments);

// Finds value.name among the attributes of Python's types (bound methods); false: no such attribute.
bool find_method(const Value& value, std::string_view name, Value& result);
// Finds a global function; false: no such name.
bool find_global(std::string_view name, Value& result);

}  // namespace troupe::jinja
