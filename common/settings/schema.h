#pragma once

// Settings of a program: a plain struct with defaults in its member initialisers, described once here, read
// from a YAML file and overridden by flags. The description gives --help, refuses unknown keys with their
// path, refuses duplicate keys and wrong types by name, and checks ranges. Example:
//
//   struct WorkerSettings { std::string host = "127.0.0.1"; int64_t port = 31000; };
//   SettingsSchema schema("troupe-worker", "answers chat requests with one model");
//   schema.add("host", &s.host, "address to listen on");
//   schema.add("port", &s.port, "port to listen on").range(0, 65535);
//   TROUPE_ASSIGN_OR_RETURN(auto args, schema.parse(argc, argv));   // --config FILE first, flags over it
//
// Keys are snake_case in YAML (`max_num_seqs`, nested `limits.body_bytes`), kebab-case as flags
// (`--max-num-seqs`,
// `--limits.body-bytes`). Bool flags: `--flag`, `--no-flag`, `--flag=true`. Lists: YAML sequence,
// comma-separated flag.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/core/status.h"

namespace troupe {

struct YamlEntry;

class SettingsSchema {
 public:
  class Field {
   public:
    Field& range(double min, double max);              // numbers
    Field& choices(std::vector<std::string> choices);  // strings, and each item of a list
    Field& unit(std::string_view unit);                // shown by --help
    Field& positional();                               // not a flag of its own; YAML only
    Field& live();                                     // may change while the program runs, see values()

   private:
    friend class SettingsSchema;
    using Target = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*>;

    bool is_bool() const { return std::holds_alternative<bool*>(target); }
    bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target); }
    bool is_string() const { return std::holds_alternative<std::string*>(target); }
    // "an integer from 0 to 65535", for errors.
    std::string expectation() const;
    // The current value as text.
    std::string value_text() const;
    // Messages say what would be right; the caller puts flag or line before them.
    Status set_scalar(std::string_view text);
    Status set_list(std::vector<std::string> items);
    Status refuse(std::string_view got) const;

    std::string key, doc, unit_text;
    Target target;
    bool yaml_only = false, is_live = false;
    bool has_range = false;
    double min = 0, max = 0;
    std::vector<std::string> allowed;
  };

  // What the command line asked for besides settings. With help or version nothing else was read or set.
  struct Parsed {
    bool help = false, version = false, check_config = false;
    std::string config_path;
    std::vector<std::string> positional;  // subcommand and its arguments
  };

  SettingsSchema(std::string_view program, std::string_view summary);
  ~SettingsSchema();
  SettingsSchema(const SettingsSchema&) = delete;
  SettingsSchema& operator=(const SettingsSchema&) = delete;

  // Targets must outlive the schema. The value they hold now is the default. REQUIRES: keys are distinct.
  Field& add(std::string_view key, std::string* target, std::string_view doc);
  Field& add(std::string_view key, int64_t* target, std::string_view doc);
  Field& add(std::string_view key, double* target, std::string_view doc);
  Field& add(std::string_view key, bool* target, std::string_view doc);
  Field& add(std::string_view key, std::vector<std::string>* target, std::string_view doc);

  // File (if --config) then flags. Errors: kInvalidArgument naming flag, or file, line and key, with what
  // would be right. A scalar flag given twice: the last one counts; a list flag given twice: both count,
  // instead of the file's list. `--` ends the flags.
  StatusOr<Parsed> parse(int argc, const char* const* argv);
  // At most 1 MB and 16 levels; no anchors, aliases or tags. After an error some targets may be set.
  Status load_yaml(std::string_view text, std::string_view file_name);
  Status load_yaml_file(const std::string& path);

  std::string help() const;
  // What is set now, in the order described: a program that reads its settings again compares two of these.
  struct Value {
    std::string key, text;
    bool live = false;
  };
  std::vector<Value> values() const;
  // Every key this program knows, for the test that holds configs/*.yaml complete.
  std::vector<std::string> keys() const;

 private:
  struct CommandLine;

  Field& add_field(std::string_view key, Field::Target target, std::string_view doc);
  Field* find(std::string_view key);
  bool is_group(std::string_view key) const;
  Status apply_yaml(const YamlEntry& entry);
  Status unknown_yaml_key(const YamlEntry& entry);
  StatusOr<CommandLine> read_command_line(int argc, const char* const* argv);
  Status read_flag(std::string_view flag, const char* next, bool& takes_next, CommandLine& line);
  Status unknown_flag(std::string_view flag) const;

  std::string program_, summary_;
  std::vector<std::unique_ptr<Field>> fields_;
};

}  // namespace troupe
