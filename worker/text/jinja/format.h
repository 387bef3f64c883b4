#pragma once

// Python's two ways to format values: "%s has %d" % (a, b), and "{} has {n:>4}".format(a, n=b).

#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// Returns `format % right`. Throws JinjaError with Python's message.
Value percent_format(Runtime& runtime, const Value& format, const Value& right);
// Returns `format.format(*positional, **named)`.
Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace troupe::jinja
