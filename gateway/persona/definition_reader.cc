#include "gateway/persona/definition_reader.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "gateway/persona/character_card.h"
#include "gateway/persona/fields.h"

namespace troupe {

namespace {

constexpr int64_t kTtlMaxS = 366 * 86'400;
constexpr std::array<std::string_view, 5> kDeliveryFields{"model", "pin", "prefill", "tenant", "ttl_s"};
constexpr std::array<std::string_view, 13> kFields{
    "card", "examples",     "greetings",    "lore",      "lore_bytes", "lore_recursive", "lore_scan_messages",
    "name", "post_history", "user_in_card", "user_note", "user_word",  "variables"};

template <size_t count>
bool has(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

PersonaFault read_variables(const PersonaFields& fields, PersonaVariables& out) {
  const bj::object* values = nullptr;
  if (auto fault = fields.read_object("variables", values)) return fault;
  if (values == nullptr) return std::nullopt;
  if (values->size() > kPersonaVariablesMax)
    return persona_field_error(fields.name_of("variables"),
                               absl::StrCat("an object of at most ", kPersonaVariablesMax));
  const PersonaFields inner{*values, fields.name_of("variables")};
  for (const auto& [key, value] : *values) {
    const std::string name = macro_name(key);
    const std::string field = inner.name_of(key);
    if (name.empty() || name == "user" || name == "char")
      return persona_field_error(field, "named by letters, digits, '_' and '-', and not 'user' or 'char'");
    if (value.is_number()) {
      out[name] = to_json(value);
      continue;
    }
    if (!value.is_string()) return persona_field_error(field, "a text or a number");
    if (auto fault = inner.read_text(key, kLateTextBytesMax, out[name])) return fault;
  }
  return std::nullopt;
}

PersonaFault read_place(const PersonaFields& fields, LoreEntry& entry) {
  std::string place;
  if (auto fault = fields.read_text("position", 32, place)) return fault;
  if (place == "early") {
    entry.place = LorePlace::kEarly;
  } else if (!place.empty() && place != "late") {
    return persona_field_error(fields.name_of("position"), "\"late\" or \"early\"");
  }
  // A constant entry without a position is the same for all users.
  if (entry.constant && place.empty() && fields.find("depth") == nullptr) entry.place = LorePlace::kAfterCard;
  return std::nullopt;
}

PersonaFault read_secondary(const PersonaFields& fields, LoreEntry& entry) {
  std::string logic;
  if (auto fault = fields.read_text("secondary_logic", 32, logic)) return fault;
  constexpr std::pair<std::string_view, SecondaryKeys> kLogics[] = {{"", SecondaryKeys::kAny},
                                                                    {"and_any", SecondaryKeys::kAny},
                                                                    {"and_all", SecondaryKeys::kAll},
                                                                    {"not_any", SecondaryKeys::kNotAny},
                                                                    {"not_all", SecondaryKeys::kNotAll}};
  for (const auto& [name, value] : kLogics) {
    if (name != logic) continue;
    entry.secondary = value;
    return std::nullopt;
  }
  return persona_field_error(fields.name_of("secondary_logic"),
                             R"("and_any", "and_all", "not_any" or "not_all")");
}

PersonaFault read_entry(const PersonaFields& fields, LoreEntry& entry) {
  constexpr PersonaFields::ListBounds kKeys{kLoreKeysMax, kLoreKeyBytesMax};
  entry.field = fields.path;
  if (auto fault = fields.read_texts("keys", kKeys, entry.keys)) return fault;
  if (auto fault = fields.read_texts("secondary_keys", kKeys, entry.secondary_keys)) return fault;
  if (auto fault = fields.read_flag("constant", entry.constant)) return fault;
  if (auto fault = fields.read_flag("case_sensitive", entry.case_sensitive)) return fault;
  if (auto fault = fields.read_flag("whole_words", entry.whole_words)) return fault;
  if (auto fault = fields.read_count("depth", 0, kLoreDepthMax, entry.depth)) return fault;
  if (auto fault = fields.read_count("order", -1'000'000, 1'000'000, entry.order)) return fault;
  if (auto fault = fields.read_count("importance", -1'000'000, 1'000'000, entry.importance)) return fault;
  if (auto fault = fields.read_text("content", kLateTextBytesMax, entry.content)) return fault;
  if (auto fault = read_secondary(fields, entry)) return fault;
  if (auto fault = read_place(fields, entry)) return fault;
  std::erase(entry.keys, "");
  std::erase(entry.secondary_keys, "");
  if (entry.content.empty()) return persona_field_error(fields.name_of("content"), "the entry's text");
  if (entry.keys.empty() && !entry.constant)
    return persona_field_error(fields.name_of("keys"), "at least one text, or 'constant' true");
  return std::nullopt;
}

PersonaFault read_lore(const PersonaFields& fields, PersonaDefinition& out) {
  const bj::array* items = nullptr;
  if (auto fault = fields.read_array("lore", kLoreEntriesMax, items)) return fault;
  if (auto fault = fields.read_count("lore_scan_messages", 1, 64, out.lore_scan_messages)) return fault;
  if (auto fault = fields.read_flag("lore_recursive", out.lore_recursive)) return fault;
  if (auto fault = fields.read_count("lore_bytes", 0, 1 << 20, out.lore_bytes)) return fault;
  for (size_t i = 0; items != nullptr && i < items->size(); ++i) {
    const std::string path = absl::StrCat("lore[", i, "]");
    if (!(*items)[i].is_object()) return persona_field_error(path, "an object");
    LoreEntry& entry = out.lore.emplace_back();
    if (auto fault = read_entry({(*items)[i].get_object(), path}, entry)) return fault;
  }
  return std::nullopt;
}

PersonaFault read_user(const PersonaFields& fields, PersonaDefinition& out) {
  std::string mode;
  if (auto fault = fields.read_text("user_in_card", 32, mode)) return fault;
  if (!mode.empty() && mode != "neutral" && mode != "each")
    return persona_field_error(fields.name_of("user_in_card"), R"("neutral" or "each")");
  out.each_user_in_card = mode == "each";
  if (auto fault = fields.read_text("user_word", kPersonaNameBytesMax, out.user_word)) return fault;
  if (fields.find("user_note") == nullptr) return std::nullopt;
  return fields.read_text("user_note", kLateTextBytesMax, out.user_note.emplace());
}

PersonaFault read_card(const PersonaFields& fields, PersonaDefinition& out) {
  const bj::value* card = fields.find("card");
  if (card != nullptr && card->is_object()) return read_character_card({card->get_object(), "card"}, out);
  if (auto fault = fields.read_text("card", kPersonaBytesMax, out.card)) return fault;
  return out.card.empty() ? PersonaFault(persona_field_error("card", "a text, or a character card's JSON"))
                          : std::nullopt;
}

}  // namespace

// The body's own fields go before the card's.
ApiResult<PersonaDefinition> parse_persona(const bj::object& body, std::string_view name) {
  const PersonaFields fields{body, ""};
  PersonaDefinition out;
  if (auto fault = read_card(fields, out)) return *std::move(fault);
  if (auto fault = fields.read_text("name", kPersonaNameBytesMax, out.character)) return *std::move(fault);
  if (out.character.empty()) out.character = name;
  if (auto fault = fields.read_text("examples", kPersonaBytesMax, out.examples)) return *std::move(fault);
  if (auto fault = fields.read_text("post_history", kLateTextBytesMax, out.post_history))
    return *std::move(fault);
  if (auto fault = read_lore(fields, out)) return *std::move(fault);
  if (out.lore.size() > kLoreEntriesMax)
    return persona_field_error("lore",
                               absl::StrCat("a list of at most ", kLoreEntriesMax, ", the card's included"));
  if (auto fault = read_user(fields, out)) return *std::move(fault);
  if (auto fault = read_variables(fields, out.variables)) return *std::move(fault);
  if (auto fault = fields.read_texts("greetings", {64, kLateTextBytesMax}, out.greetings))
    return *std::move(fault);
  for (const auto& field : body) {
    if (!has(kFields, field.key()) && !has(kDeliveryFields, field.key()))
      out.warnings.push_back(absl::StrCat("'", to_absl(std::string_view(field.key())),
                                          "' is no field of a persona: it is not used"));
  }
  return out;
}

ApiResult<PersonaDelivery> parse_delivery(const bj::object& body) {
  const PersonaFields fields{body, ""};
  PersonaDelivery out;
  if (auto fault = fields.read_flag("prefill", out.prefill)) return *std::move(fault);
  if (auto fault = fields.read_flag("pin", out.pin)) return *std::move(fault);
  if (auto fault = fields.read_text("model", 1024, out.model)) return *std::move(fault);
  if (fields.find("ttl_s") == nullptr) return out;
  if (auto fault = fields.read_count("ttl_s", 1, kTtlMaxS, out.ttl_s.emplace())) return *std::move(fault);
  return out;
}

std::string definition_json(const bj::object& body) {
  bj::object fields = body;
  for (const std::string_view name : kDeliveryFields) fields.erase(name);
  return to_json(fields);
}

bool is_persona_name(std::string_view name) {
  const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == 0x7f || (static_cast<unsigned char>(c) < 0x20);
  });
  return !name.empty() && name.size() <= kPersonaNameBytesMax && plain && is_valid_utf8(name);
}

namespace {

// Reads the other speakers, into an order that the request's does not change.
PersonaFault read_others(const PersonaFields& fields, PersonaCall& call) {
  if (auto fault = fields.read_texts("others", {kPersonaOthersMax, kPersonaNameBytesMax}, call.others))
    return fault;
  std::string cards = "swap";
  if (auto fault = fields.read_text("cards", 8, cards)) return fault;
  if (cards != "swap" && cards != "join")
    return persona_field_error(fields.name_of("cards"), "\"swap\" or \"join\"");
  call.joins_cards = cards == "join";
  if (std::find(call.others.begin(), call.others.end(), call.name) != call.others.end())
    return persona_field_error(fields.name_of("others"), "the names of other personas");
  std::sort(call.others.begin(), call.others.end());
  call.others.erase(std::unique(call.others.begin(), call.others.end()), call.others.end());
  return std::nullopt;
}

}  // namespace

ApiResult<PersonaCall> parse_persona_call(std::string_view json) {
  PersonaCall call;
  const auto value = parse_json(json);
  const auto bad_name = [] {
    return persona_field_error("persona", "a persona's name, or an object with its 'name'");
  };
  if (!value.ok()) return bad_name();
  if (value->is_string()) {
    call.name = std::string_view(value->get_string());
    return is_persona_name(call.name) ? ApiResult<PersonaCall>(std::move(call)) : bad_name();
  }
  if (!value->is_object()) return bad_name();
  const PersonaFields fields{value->get_object(), "persona"};
  if (auto fault = fields.read_text("name", kPersonaNameBytesMax, call.name)) return *std::move(fault);
  if (!is_persona_name(call.name)) return persona_field_error("persona.name", "the name of a persona");
  if (fields.find("version") != nullptr) {
    if (auto fault = fields.read_count("version", 1, INT32_MAX, call.version.emplace()))
      return *std::move(fault);
  }
  if (fields.find("user") != nullptr) {
    if (auto fault = fields.read_text("user", kPersonaNameBytesMax, call.user.emplace()))
      return *std::move(fault);
  }
  if (fields.find("greeting") != nullptr) {
    if (auto fault = fields.read_count("greeting", 0, 64, call.greeting.emplace())) return *std::move(fault);
  }
  if (auto fault = read_variables(fields, call.variables)) return *std::move(fault);
  if (auto fault = read_others(fields, call)) return *std::move(fault);
  if (call.version && call.joins_cards && !call.others.empty()) {
    return persona_field_error(fields.name_of("version"),
                               "left out with joined cards: those of all members are their last versions");
  }
  constexpr std::array<std::string_view, 7> kKnown{"cards", "greeting",  "name",   "others",
                                                   "user",  "variables", "version"};
  for (const auto& field : value->get_object()) {
    if (!has(kKnown, field.key()))
      return persona_field_error(
          fields.name_of(field.key()),
          "left out: an object has name, version, user, variables, greeting, others and cards");
  }
  return call;
}

}  // namespace troupe
