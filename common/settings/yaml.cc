// yaml-cpp's tree keeps duplicate keys and expands aliases (a few lines become gigabytes), so the file is
// read as events instead: nothing is built but the flat list, and the first thing we refuse stops the parser.

#include "common/settings/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

// Thrown out of the event handler, caught by flatten_yaml: yaml-cpp has no other way to stop.
struct Refusal {
  int line;
  std::string message;
};

int line_of(const YAML::Mark& mark) {
  return mark.line + 1;
}

// Whether the quoted scalar that begins `at` closes before its line ends.
bool closes_on_its_line(std::string_view text, size_t at) {
  if (at >= text.size() || (text[at] != '"' && text[at] != '\'')) return false;
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size() && text[i] != '\n' && text[i] != '\r'; ++i) {
    if (text[i] == quote) return true;  // of '' in single quotes the first one will do
    if (quote == '"' && text[i] == '\\') ++i;
  }
  return false;
}

class Flattener final : public YAML::EventHandler {
 public:
  // `text` is what the parser reads.
  explicit Flattener(std::string_view text) : text_(text) {}
  std::vector<YamlEntry> take() { return std::move(entries_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{line_of(mark), "aliases (*name) are not allowed; write the value out"};
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_decoration(mark, "", anchor);
    if (levels_.empty()) return;  // an empty file
    add_scalar(mark, YamlEntry::Kind::kNull, "");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_decoration(mark, tag, anchor);
    const auto at = static_cast<size_t>(mark.pos);
    const bool is_block = at < text_.size() && (text_[at] == '|' || text_[at] == '>');  // ends by its indent
    if (tag == "!" && !is_block && !closes_on_its_line(text_, at)) {
      throw Refusal{line_of(mark), "a quoted value must end on the line on which it begins"};
    }
    add_scalar(mark, tag == "!" ? YamlEntry::Kind::kQuoted : YamlEntry::Kind::kPlain, value);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_decoration(mark, tag, anchor);
    begin_value(mark);
    entries_.push_back({levels_.back().path, "", {}, 0, YamlEntry::Kind::kList, line_of(mark)});
    push(mark, {.is_list = true, .list = entries_.size() - 1, .path = levels_.back().path});
  }
  void OnSequenceEnd() override { pop(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_decoration(mark, tag, anchor);
    std::string prefix = levels_.empty() ? "" : levels_.back().path;
    if (!levels_.empty() && levels_.back().is_list) {
      prefix = begin_item(mark);
    } else if (!levels_.empty()) {
      begin_value(mark);
    }
    push(mark, {.line = line_of(mark), .prefix = std::move(prefix)});
  }
  void OnMapEnd() override {
    const Level level = std::move(levels_.back());
    if (level.is_empty && !level.prefix.empty()) {
      entries_.push_back({level.prefix, "", {}, 0, YamlEntry::Kind::kEmptyMap, level.line});
    }
    pop();
  }

 private:
  struct Level {
    bool is_list = false;
    bool is_empty = true;
    bool has_key = false;  // a key was read, its value comes next
    int line = 0;
    size_t list = 0;          // of a list: its entry
    std::string prefix = {};  // of a map: its own dotted key
    std::string path = {};    // of the value that comes next
  };

  static void refuse_decoration(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) throw Refusal{line_of(mark), "anchors (&name) are not allowed"};
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refusal{line_of(mark), "tags (!name) are not allowed"};
    }
  }

  void push(const YAML::Mark& mark, Level level) {
    if (levels_.size() >= static_cast<size_t>(kYamlDepthMax)) {
      throw Refusal{line_of(mark), absl::StrCat("nested deeper than ", kYamlDepthMax, " levels")};
    }
    levels_.push_back(std::move(level));
  }

  void pop() {
    levels_.pop_back();
    if (!levels_.empty()) levels_.back().has_key = false;
  }

  // A map or list is about to begin where a value must be.
  void begin_value(const YAML::Mark& mark) const {
    if (levels_.empty()) throw Refusal{line_of(mark), "the file must be a map of settings (key: value)"};
    if (levels_.back().is_list) {
      throw Refusal{line_of(mark), absl::StrCat("items of '", levels_.back().path, "' must be plain values")};
    }
    if (!levels_.back().has_key) throw Refusal{line_of(mark), "a key must be a plain word"};
  }

  // A map is about to begin as an item of a list; returns its dotted key.
  std::string begin_item(const YAML::Mark& mark) {
    YamlEntry& list = entries_[levels_.back().list];
    if (!list.items.empty())
      throw Refusal{line_of(mark), absl::StrCat("items of '", list.key, "' must be plain values")};
    return absl::StrCat(list.key, ".", list.maps++);
  }

  void add_scalar(const YAML::Mark& mark, YamlEntry::Kind kind, const std::string& value) {
    if (levels_.empty()) begin_value(mark);
    Level& level = levels_.back();
    if (level.is_list) {
      if (entries_[level.list].maps > 0)
        throw Refusal{line_of(mark), absl::StrCat("items of '", level.path, "' must be maps")};
      if (kind == YamlEntry::Kind::kNull) {
        throw Refusal{line_of(mark), absl::StrCat("'", level.path, "' has an item without a value")};
      }
      entries_[level.list].items.push_back(value);
    } else if (level.has_key) {
      entries_.push_back({level.path, value, {}, 0, kind, line_of(mark)});
      level.has_key = false;
    } else {
      add_key(mark, level, value);
    }
  }

  void add_key(const YAML::Mark& mark, Level& level, const std::string& key) {
    if (key.empty()) throw Refusal{line_of(mark), "a key must be a plain word"};
    level.path = level.prefix.empty() ? key : absl::StrCat(level.prefix, ".", key);
    if (level.path.size() > 512) throw Refusal{line_of(mark), "a key is longer than 512 bytes"};
    const auto [first, is_new] = lines_.emplace(level.path, line_of(mark));
    if (!is_new) {
      throw Refusal{line_of(mark),
                    absl::StrCat("duplicate key '", level.path, "', first set in line ", first->second)};
    }
    level.has_key = true;
    level.is_empty = false;
  }

  std::string_view text_;
  std::vector<Level> levels_;
  std::map<std::string, int> lines_;  // every key, groups too
  std::vector<YamlEntry> entries_;
};

Status syntax_error(std::string_view file_name, int line, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(to_absl(file_name), ":", line, ": ", to_absl(message)));
}

}  // namespace

StatusOr<std::vector<YamlEntry>> flatten_yaml(std::string_view text, std::string_view file_name) {
  if (text.size() > kYamlBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(to_absl(file_name), ": larger than the ", kYamlBytesMax,
                                                   " bytes allowed for a settings file"));
  }
  if (!is_valid_utf8(text) || text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(to_absl(file_name), ": not UTF-8 text"));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::istringstream stream{std::string(text)};
  Flattener flattener(text);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(flattener);
    std::vector<YamlEntry> entries = flattener.take();
    Flattener second(text);
    if (parser.HandleNextDocument(second)) {
      return absl::InvalidArgumentError(
          absl::StrCat(to_absl(file_name), ": holds more than one YAML document"));
    }
    return entries;
  } catch (const Refusal& refusal) {
    return syntax_error(file_name, refusal.line, refusal.message);
  } catch (const YAML::Exception& e) {
    return syntax_error(file_name, line_of(e.mark), e.msg);
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(to_absl(file_name), ": ", e.what()));
  }
}

}  // namespace troupe
