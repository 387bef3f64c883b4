#include "common/settings/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/check.h"
#include "common/core/regular_file.h"
#include "common/settings/text.h"
#include "common/settings/yaml.h"

namespace troupe {

namespace {

template <typename T>
bool parse_whole(std::string_view text, T& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

SettingsSchema::SettingsSchema(std::string_view program, std::string_view summary)
    : program_(program), summary_(summary) {}
SettingsSchema::~SettingsSchema() = default;

SettingsSchema::Field& SettingsSchema::Field::range(double min_value, double max_value) {
  TROUPE_CHECK(
      !is_integer() || (min_value >= static_cast<double>(least) && max_value <= static_cast<double>(most)),
      "the range of '" + key + "' is beyond what its target can hold");
  has_range = true;
  min = min_value;
  max = max_value;
  return *this;
}
SettingsSchema::Field& SettingsSchema::Field::choices(std::vector<std::string> choices) {
  allowed = std::move(choices);
  return *this;
}
SettingsSchema::Field& SettingsSchema::Field::unit(std::string_view unit) {
  unit_text = unit;
  return *this;
}
SettingsSchema::Field& SettingsSchema::Field::positional() {
  yaml_only = true;
  return *this;
}

SettingsSchema::Field& SettingsSchema::Field::path() {
  is_path = true;
  return *this;
}

SettingsSchema::Field& SettingsSchema::Field::live() {
  is_live = true;
  return *this;
}

std::string SettingsSchema::Field::expectation() const {
  if (is_bool()) return "true or false";
  if (!allowed.empty()) return absl::StrCat("one of ", absl::StrJoin(allowed, ", "));
  if (is_list()) return "a list of strings";
  if (is_items()) return "a list of maps";
  if (is_string()) return "a string";
  std::string text = is_integer() ? "an integer" : "a number";
  if (has_range) {
    absl::StrAppend(&text, " from ", number_text(min), " to ", number_text(max));
  } else if (least != std::numeric_limits<int64_t>::min()) {
    absl::StrAppend(&text, " from ", least, " to ", most);
  }
  return text;
}

std::string SettingsSchema::Field::value_text() const {
  if (is_bool()) return *std::get<bool*>(target) ? "true" : "false";
  if (is_list()) return absl::StrJoin(*std::get<std::vector<std::string>*>(target), ",");
  if (is_items()) {
    std::string text;
    for (const SettingsItem& item : *std::get<Items*>(target)) {
      text += '-';
      for (const YamlEntry& line : item.lines) absl::StrAppend(&text, line.key, "=", line.text, ",");
    }
    return text;
  }
  if (is_string()) return std::get<Text>(target).get();
  if (is_integer()) return absl::StrCat(std::get<Integer>(target).get());
  return number_text(std::get<Number>(target).get());
}

Status SettingsSchema::Field::refuse(std::string_view got) const {
  return absl::InvalidArgumentError(absl::StrCat("must be ", expectation(), ", not ", to_absl(got)));
}

Status SettingsSchema::Field::set_scalar(std::string_view text) {
  const auto in_range = [this](double value) { return !has_range || (value >= min && value <= max); };
  bool is_set = false;
  if (auto* flag = std::get_if<bool*>(&target)) {
    is_set = text == "true" || text == "false";
    if (is_set) **flag = text == "true";
  } else if (auto* integer = std::get_if<Integer>(&target)) {
    int64_t value = 0;
    is_set =
        parse_whole(text, value) && value >= least && value <= most && in_range(static_cast<double>(value));
    if (is_set) integer->set(value);
  } else if (auto* number = std::get_if<Number>(&target)) {
    double value = 0;
    is_set = parse_whole(text, value) && std::isfinite(value) && in_range(value);
    if (is_set) number->set(value);
  } else if (auto* string = std::get_if<Text>(&target)) {
    is_set = allowed.empty() || std::find(allowed.begin(), allowed.end(), text) != allowed.end();
    if (is_set) string->set(std::string(text));
  }
  return is_set ? absl::OkStatus() : refuse(quoted(text));
}

Status SettingsSchema::Field::set_list(std::vector<std::string> items) {
  for (const std::string& item : items) {
    if (item.empty()) return invalid_argument("has an empty item");
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), item) == allowed.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("items must be ", expectation(), ", not ", quoted(item)));
    }
  }
  *std::get<std::vector<std::string>*>(target) = std::move(items);
  return absl::OkStatus();
}

// The maps' own entries come next: apply_to_item().
Status SettingsSchema::Field::set_items(const YamlEntry& entry) {
  if (!entry.items.empty()) return invalid_argument("items must be maps, such as - url: …");
  std::get<Items*>(target)->assign(entry.maps, SettingsItem());
  return absl::OkStatus();
}

Status SettingsSchema::Field::add_line(const YamlEntry& entry) {
  using Kind = YamlEntry::Kind;
  auto& items = *std::get<Items*>(target);
  const std::string_view rest = std::string_view(entry.key).substr(key.size() + 1);
  const size_t end = rest.find('.');
  size_t index = 0;
  if (!parse_whole(rest.substr(0, end), index) || index >= items.size())
    return absl::InvalidArgumentError(absl::StrCat("'", key, "' ", refuse("a map").message()));
  if (entry.kind == Kind::kEmptyMap) return absl::OkStatus();
  YamlEntry line = entry;
  line.key = std::string(rest.substr(end + 1));
  if (entry.kind == Kind::kPlain || entry.kind == Kind::kQuoted) {
    items[index].lines.push_back(std::move(line));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("'", key, "[", index, "].", line.key, "' must have ",
                                                 entry.kind == Kind::kList
                                                     ? "a plain value, not a list"
                                                     : "a value (leave the line out for the default)"));
}

SettingsSchema::Field& SettingsSchema::add_field(std::string_view key, Field::Target target,
                                                 std::string_view doc) {
  TROUPE_CHECK(find(key) == nullptr, "key '" + std::string(key) + "' is described twice");
  auto& field = *fields_.emplace_back(std::make_unique<Field>());
  field.key = key;
  field.doc = doc;
  field.target = std::move(target);
  return field;
}

int64_t SettingsSchema::nanoseconds_per_unit(std::string_view key) {
  if (key.ends_with("_ms")) return 1'000'000;
  TROUPE_CHECK(key.ends_with("_s") || key.ends_with("_secs"),
               "key '" + std::string(key) + "' does not end with its duration's unit");
  return 1'000'000'000;
}

SettingsSchema::Field& SettingsSchema::add(std::string_view key, std::string* target, std::string_view doc) {
  return add_field(
      key, Field::Text{[target] { return *target; }, [target](const std::string& value) { *target = value; }},
      doc);
}
SettingsSchema::Field& SettingsSchema::add(std::string_view key, double* target, std::string_view doc) {
  return add_field(
      key, Field::Number{[target] { return *target; }, [target](const double& value) { *target = value; }},
      doc);
}
SettingsSchema::Field& SettingsSchema::add_fraction(std::string_view key, std::chrono::nanoseconds* target,
                                                    std::string_view doc) {
  const auto unit = static_cast<double>(nanoseconds_per_unit(key));
  return add_field(key,
                   Field::Number{[target, unit] { return static_cast<double>(target->count()) / unit; },
                                 [target, unit](const double& value) {
                                   *target = std::chrono::nanoseconds(std::llround(value * unit));
                                 }},
                   doc);
}
SettingsSchema::Field& SettingsSchema::add(std::string_view key, bool* target, std::string_view doc) {
  return add_field(key, target, doc);
}
SettingsSchema::Field& SettingsSchema::add(std::string_view key, std::vector<std::string>* target,
                                           std::string_view doc) {
  return add_field(key, target, doc);
}

SettingsSchema::Field& SettingsSchema::add(std::string_view key, std::vector<SettingsItem>* target,
                                           std::string_view doc) {
  return add_field(key, target, doc).positional();
}

SettingsSchema::Field* SettingsSchema::find(std::string_view key) {
  for (const auto& field : fields_) {
    if (field->key == key) return field.get();
    const bool within = field->is_items() && key.size() > field->key.size() && key.starts_with(field->key) &&
                        key[field->key.size()] == '.';
    if (within) return field.get();
  }
  return nullptr;
}

std::vector<SettingsSchema::Value> SettingsSchema::values() const {
  std::vector<Value> values;
  for (const auto& field : fields_) values.push_back({field->key, field->value_text(), field->is_live});
  return values;
}

std::vector<std::string> SettingsSchema::keys() const {
  std::vector<std::string> out;
  for (const auto& field : fields_) out.push_back(field->key);
  return out;
}

Status SettingsSchema::load_yaml_file(const std::string& path) {
  const auto text = read_regular_file(path, kYamlBytesMax);
  return text.ok() ? load_yaml(*text, path) : invalid_argument(to_std(text.status().message()));
}

Status SettingsSchema::load_yaml(std::string_view text, std::string_view file_name) {
  TROUPE_ASSIGN_OR_RETURN(const auto entries, flatten_yaml(text, file_name));
  for (const YamlEntry& entry : entries) {
    const Status status = apply_yaml(entry);
    if (!status.ok()) return annotate(status, to_std(absl::StrCat(to_absl(file_name), ":", entry.line)));
  }
  return absl::OkStatus();
}

Status SettingsSchema::apply_yaml(const YamlEntry& entry) {
  using Kind = YamlEntry::Kind;
  Field* field = find(entry.key);
  if (field == nullptr) return unknown_yaml_key(entry);
  if (field->key != entry.key) return field->add_line(entry);
  Status status;
  switch (entry.kind) {
    case Kind::kNull:
      status = field->refuse("empty (leave the line out for the default)");
      break;
    case Kind::kEmptyMap:
      status = field->refuse("a map");
      break;
    case Kind::kList:
      status = field->is_items()   ? field->set_items(entry)
               : !field->is_list() ? field->refuse("a list")
               : entry.maps == 0   ? field->set_list(entry.items)
                                   : invalid_argument("items must be plain values");
      break;
    case Kind::kQuoted:
      // "31000" in quotes is a string; a number must be written as one.
      status = field->is_string() ? field->set_scalar(entry.text) : field->refuse("a quoted string");
      break;
    case Kind::kPlain:
      status = field->is_list() || field->is_items() ? field->refuse(quoted(entry.text))
                                                     : field->set_scalar(entry.text);
      break;
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("'", entry.key, "' ", status.message()));
}

Status SettingsSchema::unknown_yaml_key(const YamlEntry& entry) {
  const std::string below = entry.key + ".";
  const bool is_group = std::any_of(fields_.begin(), fields_.end(),
                                    [&below](const auto& field) { return field->key.starts_with(below); });
  if (is_group) {
    // "limits:" with every line under it commented out is an empty group.
    if (entry.kind == YamlEntry::Kind::kNull || entry.kind == YamlEntry::Kind::kEmptyMap)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'", entry.key, "' must be a map of settings, not a value"));
  }
  for (size_t dot = entry.key.find('.'); dot != std::string::npos; dot = entry.key.find('.', dot + 1)) {
    const Field* parent = find(std::string_view(entry.key).substr(0, dot));
    if (parent == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", parent->key, "' ", parent->refuse("a map").message()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key '", clip_key(entry.key), "'", did_you_mean(entry.key, keys(), "")));
}

}  // namespace troupe
