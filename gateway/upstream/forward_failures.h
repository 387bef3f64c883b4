#pragma once

// How a try at a worker failed, as forward_once() reports it: each sets the result's failure and error, and
// what is held for the client if no other worker does better.

#include <string_view>

#include "gateway/upstream/forward_types.h"

namespace troupe {

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
// A good answer that is no stream, where one was asked for: held as it came.
void fail_with_whole(ForwardResult& result, const HeaderList& headers, std::string body);

}  // namespace troupe
