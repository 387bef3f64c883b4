#pragma once

// Reads the body of a dialect's request: JSON by the one strict reader, fields with errors that name them.
// Private to common/dialects.

#include <optional>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/json/json.h"

namespace troupe::dialect {

using Fault = std::optional<ApiError>;

// The body's object; members that are null are left out, as if they were absent. Errors are 400.
ApiResult<bj::object> read_body(std::string_view body);

// "'max_tokens' must be an integer of at least 1."
ApiError wrong(std::string_view path, std::string_view rule);
ApiError required(std::string_view path, std::string_view rule);
// "'store' is not supported here; …": 400 unsupported_parameter.
ApiError unsupported(std::string_view path, std::string_view instead);

// A persona of the gateway's where tokens are only counted: its text would be missing in the count.
Fault refuse_persona(const bj::object& fields);

// Each moves the member out of `fields` if it is there. Faults: it is there and of another type.
Fault take_text(bj::object& fields, std::string_view name, std::optional<std::string>& out);
Fault take_flag(bj::object& fields, std::string_view name, bool& out);
Fault take_object(bj::object& fields, std::string_view name, std::optional<bj::object>& out);
Fault take_array(bj::object& fields, std::string_view name, std::optional<bj::array>& out);
// Whatever it is; null: it is not there.
bj::value take(bj::object& fields, std::string_view name);

// Moves a member to another name, if it is there.
void move_member(bj::object& from, std::string_view name, bj::object& to, std::string_view as);
// Copies what is left of `fields` into `to`, where that has no such member: samplers, and fields that the
// core knows under the same name.
void add_rest(bj::object fields, bj::object& to);

// The arguments of a call as a model writes them: fractions in decimal ("19.5", where to_json says "1.95E1").
std::string arguments_json(const bj::object& arguments);

// messages[3].content
std::string path_of(std::string_view list, size_t index, std::string_view rest = {});

}  // namespace troupe::dialect
