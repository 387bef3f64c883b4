#pragma once

// Python's two ways to put values into a text: "%s has %d" % (a, b), and "{} has {n:>4}".format(a, n=b).

#include <string_view>

#include "worker/text/jinja/value.h"

namespace troupe::jinja {

// `format % right`. Throws JinjaError with Python's words.
Value percent_format(Runtime& runtime, const Value& format, const Value& right);
// `format.format(*positional, **named)`.
Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments);

}  // namespace troupe::jinja
