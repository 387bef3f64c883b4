// synth persona: traffic as a trace file, gzipped if its name ends in .gz.

#include <zlib.h>

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/cli/command_line.h"
#include "sim/cli/commands.h"
#include "sim/cli/options.h"

namespace troupe::sim {

namespace {

constexpr char kProgram[] = "troupe-sim synth persona";

// Writes plain or gzipped, and reports at the end whether all of it was written.
class TraceOutput {
 public:
  explicit TraceOutput(const std::string& path) : path_(path), gzip_(path.ends_with(".gz")) {
    if (gzip_) {
      zipped_ = gzopen(path.c_str(), "wb6");
    } else {
      plain_ = path == "-" ? stdout : std::fopen(path.c_str(), "wb");
    }
    failed_ = gzip_ ? zipped_ == nullptr : plain_ == nullptr;
  }
  ~TraceOutput() { close().IgnoreError(); }
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  bool write(const std::string& text) {
    if (failed_) return false;
    const auto size = static_cast<unsigned>(text.size());
    failed_ = gzip_ ? gzwrite(zipped_, text.data(), size) != static_cast<int>(size)
                    : std::fwrite(text.data(), 1, size, plain_) != size;
    return !failed_;
  }
  Status close() {
    if (zipped_ != nullptr) failed_ = gzclose(zipped_) != Z_OK || failed_;
    if (plain_ != nullptr)
      failed_ = (plain_ == stdout ? std::fflush(plain_) : std::fclose(plain_)) != 0 || failed_;
    zipped_ = nullptr;
    plain_ = nullptr;
    return failed_ ? absl::UnknownError(absl::StrCat(path_, ": cannot be written")) : absl::OkStatus();
  }

 private:
  std::string path_;
  bool gzip_;
  gzFile zipped_ = nullptr;
  std::FILE* plain_ = nullptr;
  bool failed_ = false;
};

Status synthesize(PersonaSource& source, TraceOutput& file) {
  TraceRequest request;
  std::string text;
  ProgressLine line;
  const auto progress = line.run("synth");
  for (int64_t count = 0;; ++count) {
    TROUPE_ASSIGN_OR_RETURN(const bool more, source.next(request));
    if (!more) break;
    append_trace_line(text, request, {source.set_name(), source.session_name()});
    if (text.size() < (1 << 18)) continue;
    if (!file.write(text)) break;
    text.clear();
    progress(static_cast<double>(request.at.count()) / 1e9, count);
  }
  line.ended("synth");
  file.write(text);
  return file.close();
}

}  // namespace

int synth_command(int argc, const char* const* argv) {
  SourceFlags flags;
  int64_t seed = 1;
  std::string out;
  SettingsSchema schema(
      kProgram, "persona traffic, which no public trace has, written as a trace (-o FILE[.gz], -: stdout)");
  describe_workload(schema, flags);
  schema.add("seed", &seed, "the same seed gives the same file").range(0, 1e15);
  schema.add("out", &out, "file to write, gzipped if it ends in .gz; -: stdout. Also -o").path();
  if (argc < 2 || std::string_view(argv[1]) != "persona") {
    const std::string_view asked = argc < 2 ? "" : argv[1];
    if (asked != "--help" && asked != "-h")
      return fail("troupe-sim synth", invalid_argument("what to make is missing; there is: persona"));
  } else {
    --argc;
    ++argv;
  }
  std::vector<const char*> arguments(argv, argv + argc);
  for (const char*& argument : arguments) {
    if (std::string_view(argument) == "-o") argument = "--out";
  }
  if (const auto code =
          read_source_flags(schema, flags, kProgram, static_cast<int>(arguments.size()), arguments.data()))
    return *code;
  if (out.empty()) return fail(kProgram, invalid_argument("-o FILE is missing"));
  const auto workload = workload_of(flags);
  if (!workload.ok()) return fail(kProgram, workload.status());
  auto source = PersonaSource::make(*workload, static_cast<uint64_t>(seed));
  if (!source.ok()) return fail(kProgram, source.status());
  TraceOutput file(out);
  const Status written = synthesize(**source, file);
  return written.ok() ? kExitOk : fail(kProgram, written);
}

}  // namespace troupe::sim
