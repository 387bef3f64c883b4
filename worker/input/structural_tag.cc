#include "worker/input/structural_tag.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

using grammar::Format;

constexpr uint32_t kUnbounded = grammar::RegexSet::kUnbounded;

// Each part that ends with one of several marks holds all of them, so the parts of a small tag may come to
// far more than its text: these are the bytes of marks in all parts together.
constexpr size_t kMarkBytesMax = size_t{1} << 20;

Status wrong(std::string_view path, std::string_view what) {
  return invalid_argument(absl::StrCat(to_absl(path), " must be ", to_absl(what)));
}

class TagReader {
 public:
  explicit TagReader(MarkSpeller& speller) : speller_(speller) {}

  StatusOr<Format> structures(const bj::value& root) {
    std::vector<Tag> tags;
    TROUPE_ASSIGN_OR_RETURN(const bj::array* items, list(root, "", "structures"));
    for (const bj::value& item : *items) {
      const std::string path = absl::StrCat("structures[", tags.size(), "]");
      Tag& tag = tags.emplace_back();
      TROUPE_ASSIGN_OR_RETURN(tag.begin, text(item, path, "begin"));
      TROUPE_ASSIGN_OR_RETURN(Format content, schema(item, path, "schema"));
      TROUPE_ASSIGN_OR_RETURN(std::string end, text(item, path, "end"));
      tag.rest = Format::sequence({std::move(content), Format::literal(std::move(end))});
    }
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> triggers, texts(root, "", "triggers"));
    return triggered(tags, triggers, "structures", {});
  }

  StatusOr<Format> format(const bj::value& value, const std::string& path, int depth = 0) {
    if (depth > 32) return invalid_argument(path + " is nested too deeply");
    TROUPE_ASSIGN_OR_RETURN(const std::string type, text(value, path, "type"));
    if (type == "const_string") return literal(value, path);
    if (type == "json_schema") return schema(value, path, "json_schema");
    if (type == "regex") return source(value, path, "pattern", Format::Kind::kRegex);
    if (type == "grammar") return source(value, path, "grammar", Format::Kind::kGbnf);
    if (type == "any_text") {
      if (value.get_object().if_contains("excludes") == nullptr) return Format::free({});
      TROUPE_ASSIGN_OR_RETURN(std::vector<std::string> excludes, texts(value, path, "excludes"));
      return Format::free(std::move(excludes));
    }
    if (type == "sequence" || type == "or") {
      TROUPE_ASSIGN_OR_RETURN(const bj::array* items, list(value, path, "elements"));
      std::vector<Format> parts;
      for (const bj::value& item : *items) {
        TROUPE_ASSIGN_OR_RETURN(Format part,
                                format(item, absl::StrCat(path, ".elements[", parts.size(), "]"), depth + 1));
        parts.push_back(std::move(part));
      }
      return type == "or" ? Format::either(std::move(parts)) : Format::sequence(std::move(parts));
    }
    if (type == "tag") {
      TROUPE_ASSIGN_OR_RETURN(Tag tag, this->tag(value, path, depth));
      return Format::sequence({Format::literal(std::move(tag.begin)), std::move(tag.rest)});
    }
    if (type == "triggered_tags") return triggered_tags(value, path, depth);
    if (type == "tags_with_separator") return separated_tags(value, path, depth);
    return invalid_argument(absl::StrCat(path, ".type \"", type, "\" is not supported"));
  }

 private:
  struct Tag {
    std::string begin;
    Format rest;  // content and end
  };
  struct Counts {
    bool at_least_one = false, stop_after_first = false;
  };

  StatusOr<const bj::value*> find(const bj::value& of, const std::string& path, std::string_view name) {
    const bj::value* const found =
        of.is_object() ? of.get_object().if_contains({name.data(), name.size()}) : nullptr;
    if (found == nullptr)
      return invalid_argument(absl::StrCat(path, path.empty() ? "" : ".", to_absl(name), " is missing"));
    return found;
  }
  StatusOr<std::string> text(const bj::value& of, const std::string& path, std::string_view name) {
    TROUPE_ASSIGN_OR_RETURN(const bj::value* value, find(of, path, name));
    if (!value->is_string()) return wrong(absl::StrCat(path, ".", to_absl(name)), "a text");
    return speller_.spell({value->get_string().data(), value->get_string().size()});
  }
  StatusOr<const bj::array*> list(const bj::value& of, const std::string& path, std::string_view name) {
    TROUPE_ASSIGN_OR_RETURN(const bj::value* value, find(of, path, name));
    if (!value->is_array() || value->get_array().empty())
      return wrong(absl::StrCat(path, ".", to_absl(name)), "a list, not empty");
    return &value->get_array();
  }
  StatusOr<std::vector<std::string>> texts(const bj::value& of, const std::string& path,
                                           std::string_view name) {
    TROUPE_ASSIGN_OR_RETURN(const bj::array* items, list(of, path, name));
    std::vector<std::string> found;
    for (const bj::value& item : *items) {
      if (!item.is_string() || item.get_string().empty())
        return wrong(absl::StrCat(path, ".", to_absl(name)), "a list of texts, none empty");
      found.push_back(speller_.spell({item.get_string().data(), item.get_string().size()}));
    }
    return found;
  }
  StatusOr<Counts> counts(const bj::value& of, const std::string& path) {
    Counts found;
    for (const auto& [name, flag] : {std::pair{"at_least_one", &found.at_least_one},
                                     std::pair{"stop_after_first", &found.stop_after_first}}) {
      const bj::value* const value = of.get_object().if_contains(name);
      if (value == nullptr) continue;
      if (!value->is_bool()) return wrong(absl::StrCat(path, ".", name), "true or false");
      *flag = value->get_bool();
    }
    return found;
  }

  StatusOr<Format> literal(const bj::value& of, const std::string& path) {
    TROUPE_ASSIGN_OR_RETURN(std::string value, text(of, path, "value"));
    return Format::literal(std::move(value));
  }
  StatusOr<Format> schema(const bj::value& of, const std::string& path, std::string_view name) {
    TROUPE_ASSIGN_OR_RETURN(const bj::value* value, find(of, path, name));
    Format format{.kind = Format::Kind::kSchema, .text = to_json(*value)};
    format.name = absl::StrCat(path, ".", to_absl(name));
    return format;
  }
  StatusOr<Format> source(const bj::value& of, const std::string& path, std::string_view name,
                          Format::Kind kind) {
    TROUPE_ASSIGN_OR_RETURN(const bj::value* value, find(of, path, name));
    const std::string where = absl::StrCat(path, ".", to_absl(name));
    if (!value->is_string()) return wrong(where, "a text");
    Format format{.kind = kind, .text = std::string(value->get_string().data(), value->get_string().size())};
    format.name = where;
    return format;
  }

  StatusOr<Tag> tag(const bj::value& of, const std::string& path, int depth) {
    Tag tag;
    TROUPE_ASSIGN_OR_RETURN(tag.begin, text(of, path, "begin"));
    TROUPE_ASSIGN_OR_RETURN(const bj::value* end, find(of, path, "end"));
    std::vector<std::string> ends;
    if (end->is_string()) {
      TROUPE_ASSIGN_OR_RETURN(std::string only, text(of, path, "end"));
      ends.push_back(std::move(only));
    } else {
      TROUPE_ASSIGN_OR_RETURN(ends, texts(of, path, "end"));
    }
    TROUPE_ASSIGN_OR_RETURN(const bj::value* content, find(of, path, "content"));
    TROUPE_ASSIGN_OR_RETURN(Format inside, format(*content, path + ".content", depth + 1));
    const bool is_any_text = inside.kind == Format::Kind::kFree && inside.marks.empty();
    std::vector<Format> options;
    if (is_any_text) TROUPE_RETURN_IF_ERROR(count_marks(ends, path + ".end"));
    for (const std::string& each : ends) {
      options.push_back(is_any_text && !each.empty() ? Format::until(each, ends) : Format::literal(each));
    }
    tag.rest = Format::either(std::move(options));
    if (!is_any_text || ends.front().empty())
      tag.rest = Format::sequence({std::move(inside), std::move(tag.rest)});
    return tag;
  }
  StatusOr<std::vector<Tag>> tags(const bj::value& of, const std::string& path, int depth) {
    TROUPE_ASSIGN_OR_RETURN(const bj::array* items, list(of, path, "tags"));
    std::vector<Tag> found;
    for (const bj::value& item : *items) {
      TROUPE_ASSIGN_OR_RETURN(Tag each,
                              tag(item, absl::StrCat(path, ".tags[", found.size(), "]"), depth + 1));
      found.push_back(std::move(each));
    }
    return found;
  }

  // Counts the marks of as many parts.
  Status count_marks(const std::vector<std::string>& marks, const std::string& path) {
    size_t bytes = 0;
    for (const std::string& mark : marks) bytes += sizeof(mark) + mark.size();
    mark_bytes_ += bytes * marks.size();
    if (mark_bytes_ <= kMarkBytesMax) return {};
    return invalid_argument(path + " has too many texts, or too long ones");
  }

  StatusOr<Format> triggered_tags(const bj::value& value, const std::string& path, int depth) {
    if (value.get_object().if_contains("excludes") != nullptr)
      return invalid_argument(path + ".excludes is not supported");
    TROUPE_ASSIGN_OR_RETURN(const std::vector<Tag> found, tags(value, path, depth));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> triggers, texts(value, path, "triggers"));
    TROUPE_ASSIGN_OR_RETURN(const Counts how, counts(value, path));
    return triggered(found, triggers, path + ".tags", how);
  }

  // Free text, in which a trigger begins one of the tags that begin with it.
  StatusOr<Format> triggered(const std::vector<Tag>& tags, const std::vector<std::string>& triggers,
                             const std::string& path, const Counts& how) {
    TROUPE_RETURN_IF_ERROR(count_marks(triggers, "triggers"));
    std::vector<bool> is_used(tags.size());
    std::vector<Format> ways;
    for (const std::string& trigger : triggers) {
      std::vector<Format> rests;
      for (size_t i = 0; i < tags.size(); ++i) {
        if (is_used[i] || !tags[i].begin.starts_with(trigger)) continue;
        is_used[i] = true;
        rests.push_back(
            Format::sequence({Format::literal(tags[i].begin.substr(trigger.size())), tags[i].rest}));
      }
      if (rests.empty()) continue;
      ways.push_back(Format::sequence({Format::until(trigger, triggers), Format::either(std::move(rests))}));
    }
    for (size_t i = 0; i < tags.size(); ++i) {
      if (!is_used[i]) return wrong(absl::StrCat(path, "[", i, "].begin"), "a text that a trigger begins");
    }
    const uint32_t least = how.at_least_one ? 1 : 0;
    Format all =
        Format::repeat(Format::either(std::move(ways)), least, how.stop_after_first ? 1 : kUnbounded);
    if (how.stop_after_first && how.at_least_one) return all;
    if (how.stop_after_first) {
      std::vector<Format> either;
      either.push_back(std::move(all.parts[0]));
      either.push_back(Format::free(triggers));
      return Format::either(std::move(either));
    }
    return Format::sequence({std::move(all), Format::free(triggers)});
  }

  StatusOr<Format> separated_tags(const bj::value& value, const std::string& path, int depth) {
    TROUPE_ASSIGN_OR_RETURN(std::vector<Tag> found, tags(value, path, depth));
    TROUPE_ASSIGN_OR_RETURN(std::string separator, text(value, path, "separator"));
    TROUPE_ASSIGN_OR_RETURN(const Counts how, counts(value, path));
    std::vector<Format> each;
    for (Tag& tag : found)
      each.push_back(Format::sequence({Format::literal(std::move(tag.begin)), std::move(tag.rest)}));
    Format all = Format::repeat(Format::either(std::move(each)), how.at_least_one ? 1 : 0,
                                how.stop_after_first ? 1 : kUnbounded);
    all.parts.push_back(Format::literal(std::move(separator)));
    return all;
  }

  MarkSpeller& speller_;
  size_t mark_bytes_ = 0;  // in parts
};

}  // namespace

StatusOr<Format> format_of_structural_tag(std::string_view json, MarkSpeller& speller) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(json));
  TagReader reader(speller);
  if (!root.is_object()) return wrong("a structural tag", "an object");
  if (const bj::value* format = root.get_object().if_contains("format"))
    return reader.format(*format, "format");
  return reader.structures(root);
}

}  // namespace troupe
