#pragma once

// `troupe-worker logprobs`: scores given ids, without tokenizer or server. Used to compare a model directory
// with another engine, and a backend with `ref`.

#include <iosfwd>
#include <string>
#include <vector>

namespace troupe {

// `args` are the words after "logprobs". Reads one JSON array of ids a line from `in`; writes to `out` one
// JSON array a line: the log-probability of every id after the first. The first bad line ends it. Returns the
// exit code: 0 ok, 1 failed, 2 bad usage; reasons go to `err`.
int logprobs_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                     std::ostream& err);

}  // namespace troupe
