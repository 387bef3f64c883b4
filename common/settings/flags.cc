// The command line and --help. Flags are collected first, then the file is read, then the flags are applied,
// so that a flag wins over the file wherever --config stands.

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/settings/schema.h"
#include "common/settings/text.h"

namespace troupe {

namespace {

constexpr size_t kHelpColumnMax = 40;

const std::vector<std::string> kOwnFlags = {"config", "help", "version", "check-config"};

struct HelpLine {
  std::string left, right;
};

void append_lines(std::string& out, const std::vector<HelpLine>& lines) {
  size_t column = 0;
  for (const HelpLine& line : lines) column = std::max(column, line.left.size());
  column = std::min(column, kHelpColumnMax) + 2;
  for (const HelpLine& line : lines) {
    out += "  " + line.left;
    // A flag too long for the column has its text on the next line.
    if (line.left.size() + 2 > column)
      out += "\n  " + std::string(column, ' ');
    else
      out += std::string(column - line.left.size(), ' ');
    out += line.right + "\n";
  }
}

std::string group_of(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == std::string_view::npos ? "" : std::string(key.substr(0, dot));
}

// The items of every occurrence of a list flag; `--flag=` is the empty list.
std::vector<std::string> split_lists(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    for (const absl::string_view item : absl::StrSplit(text, ',')) items.emplace_back(item);
  }
  return items;
}

}  // namespace

// The command line sorted out, nothing applied yet.
struct SettingsSchema::CommandLine {
  struct Value {
    Field* field;
    std::string flag;  // as typed, for errors
    std::vector<std::string> texts;
  };
  Parsed parsed;
  std::vector<Value> values;  // in the order of their first flag

  Value& value_of(Field* field) {
    for (Value& value : values) {
      if (value.field == field) return value;
    }
    return values.emplace_back(Value{field, {}, {}});
  }
};

Status SettingsSchema::unknown_flag(std::string_view flag) const {
  std::vector<std::string> known = kOwnFlags;
  for (const auto& field : fields_) {
    if (!field->yaml_only) known.push_back(to_flag(field->key));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown flag '--", clip_key(flag), "'", did_you_mean(flag, known, "--"), " (--help lists them all)"));
}

// `flag` comes without its dashes, possibly with "=value"; `next` is the word after it or null.
Status SettingsSchema::read_flag(std::string_view flag, const char* next, bool& takes_next,
                                 CommandLine& line) {
  const size_t equals = flag.find('=');
  const std::string_view name = flag.substr(0, equals);
  std::optional<std::string> value;
  if (equals != std::string_view::npos) value = std::string(flag.substr(equals + 1));
  const auto take_value = [&]() -> Status {
    if (value) return absl::OkStatus();
    if (next == nullptr || std::string_view(next).starts_with("--")) {
      return absl::InvalidArgumentError(absl::StrCat("flag '--", to_absl(name), "' needs a value"));
    }
    value = next;
    takes_next = true;
    return absl::OkStatus();
  };
  if (name == "config") {
    TROUPE_RETURN_IF_ERROR(take_value());
    if (value->empty()) return invalid_argument("flag '--config' needs a file");
    line.parsed.config_path = *value;
    return absl::OkStatus();
  }
  for (const auto& [own, target] :
       {std::pair("help", &line.parsed.help), std::pair("version", &line.parsed.version),
        std::pair("check-config", &line.parsed.check_config)}) {
    if (name != own) continue;
    if (value) return absl::InvalidArgumentError(absl::StrCat("flag '--", own, "' takes no value"));
    *target = true;
    return absl::OkStatus();
  }
  Field* field = find(to_key(name));
  const bool is_negated = field == nullptr && name.starts_with("no-");
  if (is_negated) field = find(to_key(name.substr(3)));
  if (field == nullptr || field->yaml_only || (is_negated && !field->is_bool())) return unknown_flag(name);
  if (is_negated && value) {
    return absl::InvalidArgumentError(absl::StrCat("flag '--", to_absl(name), "' takes no value"));
  }
  if (field->is_bool()) {
    if (!value) value = is_negated ? "false" : "true";
  } else {
    TROUPE_RETURN_IF_ERROR(take_value());
  }
  CommandLine::Value& slot = line.value_of(field);
  slot.flag = absl::StrCat("--", to_absl(name));
  if (!field->is_list()) slot.texts.clear();
  slot.texts.push_back(*value);
  return absl::OkStatus();
}

StatusOr<SettingsSchema::CommandLine> SettingsSchema::read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      line.parsed.positional.insert(line.parsed.positional.end(), argv + i + 1, argv + argc);
      break;
    }
    if (word == "-h") {
      line.parsed.help = true;
    } else if (word.starts_with("--")) {
      bool takes_next = false;
      TROUPE_RETURN_IF_ERROR(
          read_flag(word.substr(2), i + 1 < argc ? argv[i + 1] : nullptr, takes_next, line));
      if (takes_next) ++i;
    } else if (word.size() > 1 && word[0] == '-') {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag ", quoted(word), "; flags begin with '--'"));
    } else {
      line.parsed.positional.emplace_back(word);
    }
  }
  return line;
}

StatusOr<SettingsSchema::Parsed> SettingsSchema::parse(int argc, const char* const* argv) {
  TROUPE_ASSIGN_OR_RETURN(CommandLine line, read_command_line(argc, argv));
  if (line.parsed.help || line.parsed.version) return line.parsed;
  if (!line.parsed.config_path.empty()) TROUPE_RETURN_IF_ERROR(load_yaml_file(line.parsed.config_path));
  for (const CommandLine::Value& value : line.values) {
    const bool is_empty = std::find(value.texts.begin(), value.texts.end(), "") != value.texts.end();
    if (value.field->is_path && is_empty)
      return absl::InvalidArgumentError(
          absl::StrCat("flag '", value.flag, "' needs a file: its value is empty"));
    const Status status = value.field->is_list() ? value.field->set_list(split_lists(value.texts))
                                                 : value.field->set_scalar(value.texts.back());
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("flag '", value.flag, "' ", status.message()));
    }
  }
  return line.parsed;
}

std::string SettingsSchema::help() const {
  const auto describe = [](const Field& field) {
    std::string left;
    if (field.yaml_only) {
      left = field.key;
    } else {
      left = absl::StrCat(field.is_bool() ? "--[no-]" : "--", to_flag(field.key));
    }
    if (field.is_list()) left += " A,B";
    if (field.is_string()) left += " TEXT";
    if (field.is_integer()) left += " INTEGER";
    if (std::holds_alternative<Field::Number>(field.target)) left += " NUMBER";
    std::string notes;
    if (!field.allowed.empty() || field.has_range) absl::StrAppend(&notes, field.expectation(), "; ");
    if (!field.unit_text.empty()) absl::StrAppend(&notes, "in ", field.unit_text, "; ");
    const std::string value = field.value_text();
    absl::StrAppend(&notes, "default ", value.empty() ? "empty" : value);
    if (field.is_live) notes += "; changes on SIGHUP";
    return HelpLine{left, absl::StrCat(field.doc, " (", notes, ")")};
  };

  // "" comes first: the settings without a group, then the groups by name, then what has no flag.
  std::map<std::string, std::vector<HelpLine>> groups;
  std::vector<HelpLine> file_only;
  for (const auto& field : fields_) {
    (field->yaml_only ? file_only : groups[group_of(field->key)]).push_back(describe(*field));
  }

  std::string out =
      absl::StrCat(program_, ": ", summary_, "\n\nUsage: ", program_, " [--config FILE] [flags]\n\n");
  append_lines(out, {{"--config FILE", "YAML file of the settings below; flags win over it"},
                     {"--check-config", "read and check the settings, then exit"},
                     {"--version", "print the version and exit"},
                     {"--help, -h", "print this and exit"}});
  for (const auto& [group, lines] : groups) {
    absl::StrAppend(&out, "\n", group.empty() ? "Settings" : group, ":\n");
    append_lines(out, lines);
  }
  if (!file_only.empty()) {
    out += "\nOnly in the file:\n";
    append_lines(out, file_only);
  }
  return out;
}

}  // namespace troupe
