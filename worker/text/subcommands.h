#pragma once

// troupe-worker's subcommands that need no engine: lines of JSON in, lines of JSON out. They compare the
// tokenizer and the templates with the originals. Arguments are those after the subcommand's name; the result
// is the exit status: 0 ok, 1 failed, 2 bad usage.

#include <iosfwd>
#include <string>
#include <vector>

namespace troupe {

// `--model DIR [--decode]`: a JSON string a line → a JSON array of ids a line, or the other way. Stops with 1
// at the first invalid line.
int tokenize_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                     std::ostream& err);

// `--template FILE`: a JSON context a line → {"text": …} or {"error": …}, exactly one line each; 0 whatever
// the lines held. 1 if the template does not parse.
int render_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                   std::ostream& err);

}  // namespace troupe
