#pragma once

// Settings of a program: the options of its parts, with defaults in their member initialisers, described once
// here, read from a YAML file and overridden by flags. The description gives --help, refuses unknown keys
// with their path, refuses duplicate keys and wrong types by name, and checks ranges. Example:
//
//   struct ProberOptions { std::chrono::milliseconds interval{1000}; size_t body_bytes_max = 1 << 20; };
//   SettingsSchema schema("troupe-gateway", "routes chat requests to workers");
//   schema.add("probe.interval_ms", &options.interval, "between probes of a worker").range(10, 3.6e6);
//   schema.add("probe.body_bytes", &options.body_bytes_max, "an answer, at most").range(1024, 1e9);
//   TROUPE_ASSIGN_OR_RETURN(auto args, schema.parse(argc, argv));   // --config FILE first, flags over it
//
// Keys are snake_case in YAML (`max_num_seqs`, nested `limits.body_bytes`)
// and kebab-case as flags (`--max-num-seqs`, `--limits.body-bytes`).
// Bool flags: `--flag`, `--no-flag`, `--flag=true`.
// Lists: YAML sequence, comma-separated flag.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/core/status.h"
#include "common/settings/yaml.h"

namespace troupe {

// A map in a list of maps: an entry of `upstreams` and the like, which its owner reads by a schema of its
// own.
struct SettingsItem {
  std::vector<YamlEntry> lines;  // their keys within the item, dotted: "tls.ca"
};

// The names by which an enum is set, in the order in which --help lists them.
template <typename E>
using EnumName = std::pair<std::string_view, E>;

class SettingsSchema {
 public:
  class Field {
   public:
    Field& range(double min, double max);              // numbers
    Field& choices(std::vector<std::string> choices);  // strings, and each item of a list
    Field& unit(std::string_view unit);                // shown by --help
    Field& positional();                               // not a flag of its own; YAML only
    Field& path();  // a file's: as a flag never empty, as an unset $FILE is
    Field& live();  // may change while the program runs, see values()

   private:
    friend class SettingsSchema;
    // A target of another type (a duration, an enum) is read and written as one of these.
    template <typename T>
    struct Access {
      std::function<T()> get;
      std::function<void(const T&)> set;
    };
    using Text = Access<std::string>;
    using Integer = Access<int64_t>;
    using Number = Access<double>;
    using Items = std::vector<SettingsItem>;
    using Target = std::variant<Text, Integer, Number, bool*, std::vector<std::string>*, Items*>;

    bool is_bool() const { return std::holds_alternative<bool*>(target); }
    bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target); }
    bool is_items() const { return std::holds_alternative<Items*>(target); }
    bool is_string() const { return std::holds_alternative<Text>(target); }
    bool is_integer() const { return std::holds_alternative<Integer>(target); }
    // "an integer from 0 to 65535", for errors.
    std::string expectation() const;
    // The current value as text.
    std::string value_text() const;
    // Messages say what would be right; the caller puts flag or line before them.
    Status set_scalar(std::string_view text);
    Status set_list(std::vector<std::string> items);
    Status set_items(const YamlEntry& entry);
    Status add_line(const YamlEntry& entry);  // of an item
    Status refuse(std::string_view got) const;

    std::string key, doc, unit_text;
    Target target;
    bool yaml_only = false, is_live = false, is_path = false;
    bool has_range = false;  // set by range(); --help shows it
    double min = 0, max = 0;
    // The values that an integer's target can hold, in the key's unit.
    int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
    std::vector<std::string> allowed;
  };

  // The command line's requests besides settings. With help or version nothing else was read or set.
  struct Parsed {
    bool help = false, version = false, check_config = false;
    std::string config_path;
    std::vector<std::string> positional;  // subcommand and its arguments
  };

  SettingsSchema(std::string_view program, std::string_view summary);
  ~SettingsSchema();
  SettingsSchema(const SettingsSchema&) = delete;
  SettingsSchema& operator=(const SettingsSchema&) = delete;

  // Targets must outlive the schema. The value they hold now is the default. REQUIRES: keys are distinct; a
  // range lies within what the target can hold. Besides the types below, T may be any integer, and any
  // std::chrono duration: a whole number in the unit that the key ends with (_ms, _s or _secs).
  Field& add(std::string_view key, std::string* target, std::string_view doc);
  Field& add(std::string_view key, double* target, std::string_view doc);
  Field& add(std::string_view key, bool* target, std::string_view doc);
  Field& add(std::string_view key, std::vector<std::string>* target, std::string_view doc);
  template <std::integral T>
  Field& add(std::string_view key, T* target, std::string_view doc);
  template <typename Rep, typename Period>
  Field& add(std::string_view key, std::chrono::duration<Rep, Period>* target, std::string_view doc);
  // A duration set as a number with a fraction.
  Field& add_fraction(std::string_view key, std::chrono::nanoseconds* target, std::string_view doc);
  // A list of maps; only in the file.
  Field& add(std::string_view key, std::vector<SettingsItem>* target, std::string_view doc);
  // An enum by its names. REQUIRES: the target's value has one.
  template <typename E, size_t N>
  Field& add_enum(std::string_view key, E* target, const EnumName<E> (&names)[N], std::string_view doc);

  // File (if --config) then flags. Errors: kInvalidArgument naming flag, or file, line and key, with what
  // would be right. A scalar flag given twice: the last one counts; a list flag given twice: both count,
  // instead of the file's list. `--` ends the flags.
  StatusOr<Parsed> parse(int argc, const char* const* argv);
  // At most 1 MB and 16 levels; no anchors, aliases or tags. After an error some targets may be set.
  Status load_yaml(std::string_view text, std::string_view file_name);
  Status load_yaml_file(const std::string& path);
  // One entry of a file. Errors name its key.
  Status apply_yaml(const YamlEntry& entry);

  std::string help() const;
  // A current value, in the order described: a program that reads its settings again compares two lists.
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
  // Reads the unit that ends the key.
  static int64_t nanoseconds_per_unit(std::string_view key);
  Field* find(std::string_view key);  // a list of maps is found by its items' keys, too
  Status unknown_yaml_key(const YamlEntry& entry);
  StatusOr<CommandLine> read_command_line(int argc, const char* const* argv);
  Status read_flag(std::string_view flag, const char* next, bool& takes_next, CommandLine& line);
  Status unknown_flag(std::string_view flag) const;

  std::string program_, summary_;
  std::vector<std::unique_ptr<Field>> fields_;
};

template <std::integral T>
SettingsSchema::Field& SettingsSchema::add(std::string_view key, T* target, std::string_view doc) {
  Field& field =
      add_field(key,
                Field::Integer{[target] { return static_cast<int64_t>(*target); },
                               [target](const int64_t& value) { *target = static_cast<T>(value); }},
                doc);
  if constexpr (std::cmp_greater(std::numeric_limits<T>::min(), std::numeric_limits<int64_t>::min()))
    field.least = std::numeric_limits<T>::min();
  if constexpr (std::cmp_less(std::numeric_limits<T>::max(), std::numeric_limits<int64_t>::max()))
    field.most = std::numeric_limits<T>::max();
  return field;
}

template <typename Rep, typename Period>
SettingsSchema::Field& SettingsSchema::add(std::string_view key, std::chrono::duration<Rep, Period>* target,
                                           std::string_view doc) {
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  const int64_t unit = nanoseconds_per_unit(key);
  Field& field = add_field(
      key,
      Field::Integer{[target, unit] { return duration_cast<nanoseconds>(*target).count() / unit; },
                     [target, unit](const int64_t& value) {
                       *target = duration_cast<std::chrono::duration<Rep, Period>>(nanoseconds(value * unit));
                     }},
      doc);
  field.least = 0;
  field.most = std::numeric_limits<int64_t>::max() / unit;
  return field;
}

template <typename E, size_t N>
SettingsSchema::Field& SettingsSchema::add_enum(std::string_view key, E* target,
                                                const EnumName<E> (&names)[N], std::string_view doc) {
  const std::vector<EnumName<E>> all(names, names + N);
  std::vector<std::string> words;
  for (const auto& [word, value] : all) words.emplace_back(word);
  const auto get = [target, all] {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& n) { return n.second == *target; });
    return found == all.end() ? std::string() : std::string(found->first);
  };
  const auto set = [target, all](const std::string& word) {
    for (const auto& [name, value] : all) {
      if (name == word) *target = value;
    }
  };
  return add_field(key, Field::Text{get, set}, doc).choices(std::move(words));
}

}  // namespace troupe
