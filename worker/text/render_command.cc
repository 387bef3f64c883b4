#include <boost/json/object.hpp>
#include <istream>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/core/status.h"
#include "common/json/json.h"
#include "common/json/wide_json.h"
#include "worker/text/chat_template.h"
#include "worker/text/subcommands.h"

namespace troupe {
namespace {

constexpr const char* kUsage =
    "usage: troupe-worker render --template FILE\n"
    "  stdin: one JSON object a line, its keys the template's variables (messages, tools,\n"
    "  add_generation_prompt, bos_token, …; now = \"YYYY-MM-DD HH:MM:SS\" fixes strftime_now);\n"
    "  stdout: {\"text\": …} or {\"error\": …}, a line each.\n";

StatusOr<std::string> render_line(const ChatTemplate& chat_template, const std::string& line) {
  TROUPE_ASSIGN_OR_RETURN(bj::value context, parse_json_with_wide_integers(line));
  if (!context.is_object()) return invalid_argument("expected a JSON object");
  return chat_template.render(context.get_object());
}

}  // namespace

int render_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                   std::ostream& err) {
  std::string path;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help") {
      out << kUsage;
      return 0;
    }
    if (args[i] != "--template" || i + 1 == args.size()) {
      err << "unknown or incomplete argument: " << args[i] << "\n" << kUsage;
      return 2;
    }
    path = args[++i];
  }
  if (path.empty()) {
    err << "--template is missing\n" << kUsage;
    return 2;
  }
  const auto source = read_regular_file(path, kTemplateFileBytesMax);
  if (!source.ok()) {
    err << source.status().message() << "\n";
    return 1;
  }
  // A template that does not parse gets the answer of one that does not render: one line each.
  StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::parse(*source);
  for (std::string line; std::getline(in, line);) {
    StatusOr<std::string> text = parsed.ok() ? render_line(**parsed, line) : parsed.status();
    std::string answer = text.ok() ? "{\"text\": " : "{\"error\": ";
    append_json_string(answer, text.ok() ? *text : std::string(to_std(text.status().message())));
    out << answer << "}\n";
  }
  out.flush();
  return 0;
}

}  // namespace troupe
