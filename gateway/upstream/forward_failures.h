#pragma once

// How a try at a worker failed, as forward_once() reports it: each sets the result's failure and error, and
// what is held for the client if no other worker does better.

#include <string_view>

#include "gateway/upstream/forward_types.h"

namespace troupe {

inline constexpr std::string_view kErrorInAnswer = "the worker's answer is an error";

// kDeadlineExceeded is a failure of its own kind, whatever `kind` says.
void fail(ForwardResult& result, route::FailureKind kind, Status error);
// `error`: HttpClient::send()'s.
void fail_to_send(ForwardResult& result, const Status& error);
// `error`: ClientAnswer::read()'s.
void fail_to_read(ForwardResult& result, Status error);
void fail_with_nothing(ForwardResult& result);
// Reads and holds a worker's error, to pass it on if no other worker does better.
Task<void> fail_with_status(ClientAnswer& answer, ForwardResult& result);
// An error that the client has not seen is held like a status: another worker may do better.
void fail_with_error(ForwardResult& result, StreamError error, std::string_view why);
void fail_to_translate(ForwardInput& input, ForwardResult& result);
void fail_to_stream(ForwardResult& result);
// Events, where a whole answer was asked for: the client could not read them.
void fail_with_events(ForwardResult& result);
// A good answer that is no stream, where one was asked for: held as it came.
void fail_with_whole(ForwardResult& result, const HeaderList& headers, std::string body);

// A foreign worker's answer that should be one, and of a form that is known here.
bool is_judged(const ForwardInput& input, const ForwardResult& result);
// A whole answer of a foreign worker that is an error or nothing at all is its worker's failure, which is
// noted. `is_begin`: more of `body` is to come.
bool is_no_answer(const ForwardInput& input, const ClientAnswer& answer, ForwardResult& result,
                  std::string_view body, bool is_begin);
// A request that is too long for this worker may not be for another: its refusal is held and noted.
bool holds_length_refusal(const ClientAnswer& answer, ForwardResult& result, std::string& body);

}  // namespace troupe
