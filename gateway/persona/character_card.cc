#include "gateway/persona/character_card.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr int64_t kFar = 1'000'000;

void append_section(std::string& out, std::string_view title, std::string_view text) {
  if (text.empty()) return;
  absl::StrAppend(&out, out.empty() ? "" : "\n", to_absl(title), to_absl(text));
}

// Values of an entry's `extensions` that do nothing.
bool is_neutral(std::string_view name, const bj::value& value) {
  if (value.is_null() || (value.is_bool() && !value.get_bool())) return true;
  if (value.is_string()) return value.get_string().empty();
  if (!value.is_number()) return false;
  const double number =
      value.is_double() ? value.get_double() : static_cast<double>(value.to_number<int64_t>());
  return number == (name == "probability" ? 100 : 0);
}

constexpr std::array<std::string_view, 8> kNotFollowed{"probability",       "group",     "sticky",
                                                       "cooldown",          "delay",     "exclude_recursion",
                                                       "prevent_recursion", "vectorized"};

// extensions.position of SillyTavern: 0 and 1 stand before and behind the card, 4 at a depth.
PersonaFault read_extensions(const PersonaFields& entry, LoreEntry& out, std::vector<std::string>& warnings) {
  const bj::object* extensions = nullptr;
  if (auto fault = entry.read_object("extensions", extensions)) return fault;
  if (extensions == nullptr) return std::nullopt;
  const PersonaFields fields{*extensions, entry.name_of("extensions")};
  int64_t position = -1, depth = out.depth, logic = 0;
  if (extensions->contains("position") && fields.find("position")->is_number()) {
    if (auto fault = fields.read_count("position", 0, 16, position)) return fault;
  }
  if (auto fault = fields.read_count("depth", 0, kLoreDepthMax, depth)) return fault;
  if (auto fault = fields.read_count("selectiveLogic", 0, 3, logic)) return fault;
  if (auto fault = fields.read_flag("match_whole_words", out.whole_words)) return fault;
  if (auto fault = fields.read_flag("case_sensitive", out.case_sensitive)) return fault;
  constexpr SecondaryKeys kLogics[] = {SecondaryKeys::kAny, SecondaryKeys::kNotAll, SecondaryKeys::kNotAny,
                                       SecondaryKeys::kAll};
  out.secondary = kLogics[logic];
  const bool at_depth = position == 4 || (position < 0 && fields.find("depth") != nullptr);
  if (at_depth) out.depth = depth;
  if (out.constant && at_depth) out.place = LorePlace::kLate;
  for (const std::string_view name : kNotFollowed) {
    const bj::value* value = extensions->if_contains(name);
    if (value == nullptr || is_neutral(name, *value)) continue;
    warnings.push_back(absl::StrCat("'", fields.name_of(name),
                                    "' is not followed: the entry is there whenever its keys are"));
  }
  return std::nullopt;
}

// Lines "@@name value" at the beginning of a V3 entry's content.
PersonaFault read_decorators(LoreEntry& entry, bool& enabled, std::vector<std::string>& warnings) {
  std::string_view rest = entry.content;
  while (rest.starts_with("@@")) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(2, end - 2);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, space),
                           value = line.substr(std::min(space + 1, line.size()));
    int64_t number = -1;
    std::from_chars(value.data(), value.data() + value.size(), number);
    if (name == "depth" && number >= 0 && number <= kLoreDepthMax) {
      entry.depth = number;
      if (entry.constant) entry.place = LorePlace::kLate;
    } else if (name == "constant" || name == "activate") {
      entry.constant = true;
    } else if (name == "dont_activate") {
      enabled = false;
    } else {
      warnings.push_back(absl::StrCat("'", entry.field, ".content': @@", to_absl(line), " is not followed"));
    }
  }
  entry.content = std::string(rest);
  return std::nullopt;
}

PersonaFault read_book_entry(const PersonaFields& fields, PersonaDefinition& out) {
  bool enabled = true, selective = false, regex = false;
  LoreEntry entry;
  entry.field = fields.path;
  constexpr PersonaFields::ListBounds kKeys{kLoreKeysMax, kLoreKeyBytesMax};
  if (auto fault = fields.read_flag("enabled", enabled)) return fault;
  if (!enabled) return std::nullopt;
  if (auto fault = fields.read_flag("use_regex", regex)) return fault;
  if (regex) {
    return persona_field_error(
        fields.name_of("use_regex"),
        "false: keys are words and phrases here (or set 'enabled' of the entry to false)");
  }
  if (auto fault = fields.read_texts("keys", kKeys, entry.keys)) return fault;
  if (auto fault = fields.read_texts("secondary_keys", kKeys, entry.secondary_keys)) return fault;
  if (auto fault = fields.read_flag("selective", selective)) return fault;
  if (!selective) entry.secondary_keys.clear();
  if (auto fault = fields.read_flag("constant", entry.constant)) return fault;
  if (auto fault = fields.read_flag("case_sensitive", entry.case_sensitive)) return fault;
  if (auto fault = fields.read_text("content", kLateTextBytesMax, entry.content)) return fault;
  if (auto fault = fields.read_count("insertion_order", -kFar, kFar, entry.order)) return fault;
  if (auto fault = fields.read_count("priority", -kFar, kFar, entry.importance)) return fault;
  std::string position;
  if (fields.find("position") != nullptr && fields.find("position")->is_string()) {
    if (auto fault = fields.read_text("position", 64, position)) return fault;
  }
  if (entry.constant)
    entry.place = position == "before_char" ? LorePlace::kBeforeCard : LorePlace::kAfterCard;
  if (auto fault = read_extensions(fields, entry, out.warnings)) return fault;
  if (auto fault = read_decorators(entry, enabled, out.warnings)) return fault;
  std::erase(entry.keys, "");
  std::erase(entry.secondary_keys, "");
  if (!enabled || entry.content.empty()) return std::nullopt;
  if (entry.keys.empty() && !entry.constant) {
    out.warnings.push_back(
        absl::StrCat("'", entry.field, "' has no keys and is not constant: it is never there"));
    return std::nullopt;
  }
  out.lore.push_back(std::move(entry));
  return std::nullopt;
}

PersonaFault read_book(const PersonaFields& card, PersonaDefinition& out) {
  const bj::object* book = nullptr;
  if (auto fault = card.read_object("character_book", book)) return fault;
  if (book == nullptr) return std::nullopt;
  const PersonaFields fields{*book, card.name_of("character_book")};
  int64_t tokens = 0;
  if (auto fault = fields.read_count("scan_depth", 1, 64, out.lore_scan_messages)) return fault;
  if (auto fault = fields.read_count("token_budget", 0, 1 << 18, tokens)) return fault;
  if (auto fault = fields.read_flag("recursive_scanning", out.lore_recursive)) return fault;
  if (tokens > 0) out.lore_bytes = tokens * 4;  // about
  const bj::array* entries = nullptr;
  if (auto fault = fields.read_array("entries", kLoreEntriesMax, entries)) return fault;
  for (size_t i = 0; entries != nullptr && i < entries->size(); ++i) {
    const std::string path = absl::StrCat(fields.name_of("entries"), "[", i, "]");
    if (!(*entries)[i].is_object()) return persona_field_error(path, "an object");
    if (auto fault = read_book_entry({(*entries)[i].get_object(), path}, out)) return fault;
  }
  return std::nullopt;
}

PersonaFault read_data(const PersonaFields& card, PersonaDefinition& out) {
  std::string system, description, personality, scenario, first;
  if (auto fault = card.read_text("name", kPersonaNameBytesMax, out.character)) return fault;
  std::string nickname;
  if (auto fault = card.read_text("nickname", kPersonaNameBytesMax, nickname)) return fault;
  if (!nickname.empty()) out.character = nickname;  // V3: in place of the name, in macros
  if (auto fault = card.read_text("system_prompt", kPersonaBytesMax, system)) return fault;
  if (auto fault = card.read_text("description", kPersonaBytesMax, description)) return fault;
  if (auto fault = card.read_text("personality", kPersonaBytesMax, personality)) return fault;
  if (auto fault = card.read_text("scenario", kPersonaBytesMax, scenario)) return fault;
  if (auto fault = card.read_text("mes_example", kPersonaBytesMax, out.examples)) return fault;
  if (auto fault = card.read_text("post_history_instructions", kLateTextBytesMax, out.post_history))
    return fault;
  if (auto fault = card.read_text("first_mes", kLateTextBytesMax, first)) return fault;
  std::vector<std::string> others;
  if (auto fault = card.read_texts("alternate_greetings", {64, kLateTextBytesMax}, others)) return fault;
  if (!first.empty()) out.greetings.push_back(std::move(first));
  out.greetings.insert(out.greetings.end(), others.begin(), others.end());
  // (A front end's own prompt stands here where a card has none.)
  append_section(out.card, "",
                 system.empty() ? "You are playing {{char}} in a role play with {{user}}." : system);
  append_section(out.card, "", description);
  append_section(out.card, "{{char}}'s personality: ", personality);
  append_section(out.card, "Scenario: ", scenario);
  return read_book(card, out);
}

}  // namespace

PersonaFault read_character_card(const PersonaFields& card, PersonaDefinition& out) {
  std::string spec;
  if (auto fault = card.read_text("spec", 64, spec)) return fault;
  const bj::object* data = nullptr;
  if (auto fault = card.read_object("data", data)) return fault;
  if (!spec.empty() && spec != "chara_card_v2" && spec != "chara_card_v3")
    return persona_field_error(card.name_of("spec"), R"("chara_card_v2" or "chara_card_v3")");
  if (!spec.empty() && data == nullptr) return persona_field_error(card.name_of("data"), "the card's object");
  PersonaFault fault = data != nullptr ? read_data({*data, card.name_of("data")}, out) : read_data(card, out);
  if (fault) return fault;
  if (out.character.empty())
    return persona_field_error(data != nullptr ? "card.data.name" : "card.name", "the character's name");
  return std::nullopt;
}

}  // namespace troupe
