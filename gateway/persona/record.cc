#include "gateway/persona/record.h"

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/persona/fields.h"

namespace troupe {

namespace {

constexpr size_t kVersionsMax = 64;

Status refused(const ApiError& error) {
  return invalid_argument(error.message);
}

PersonaFault read_version(const PersonaFields& fields, PersonaVersion& version) {
  if (auto fault = fields.read_count("number", 1, INT32_MAX, version.number)) return fault;
  if (auto fault = fields.read_count("created", 0, int64_t{1} << 40, version.created_s)) return fault;
  if (auto fault = fields.read_text("prefix", 128, version.prefix_id)) return fault;
  const bj::object* definition = nullptr;
  if (auto fault = fields.read_object("definition", definition)) return fault;
  if (definition == nullptr) return persona_field_error(fields.name_of("definition"), "an object");
  version.definition = to_json(*definition);
  return std::nullopt;
}

}  // namespace

std::string persona_record_json(const Persona& persona) {
  std::string head = "{\"owner\":";
  append_json_string(head, persona.owner);
  head += ",\"name\":";
  append_json_string(head, persona.name);
  head += ",\"versions\":[";
  std::string versions;
  for (auto version = persona.versions.rbegin(); version != persona.versions.rend(); ++version) {
    std::string text = absl::StrCat("{\"number\":", version->number, ",\"created\":", version->created_s);
    if (!version->prefix_id.empty()) absl::StrAppend(&text, ",\"prefix\":\"", version->prefix_id, "\"");
    absl::StrAppend(&text, ",\"definition\":", version->definition, "}");
    if (!versions.empty() && head.size() + text.size() + versions.size() > kPersonaRecordBytesMax) break;
    versions = versions.empty() ? text : absl::StrCat(text, ",", versions);
  }
  return absl::StrCat(head, versions, "]}");
}

StatusOr<Persona> parse_persona_record(std::string_view json) {
  JsonLimits limits;
  limits.bytes_max = 2 * kPersonaRecordBytesMax;
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(json, limits));
  if (!root.is_object()) return invalid_argument("a persona's record is an object");
  const PersonaFields fields{root.get_object(), ""};
  Persona persona;
  if (auto fault = fields.read_text("owner", 256, persona.owner)) return refused(*fault);
  if (auto fault = fields.read_text("name", kPersonaNameBytesMax, persona.name)) return refused(*fault);
  if (!is_persona_name(persona.name)) return invalid_argument("name: must be a persona's name");
  const bj::array* versions = nullptr;
  if (auto fault = fields.read_array("versions", kVersionsMax, versions)) return refused(*fault);
  if (versions == nullptr || versions->empty())
    return invalid_argument("versions: must be a list, not empty");
  int64_t last = 0;
  for (const bj::value& item : *versions) {
    if (!item.is_object()) return invalid_argument("versions: must hold objects");
    PersonaVersion& version = persona.versions.emplace_back();
    if (auto fault = read_version({item.get_object(), "versions"}, version)) return refused(*fault);
    if (version.number <= last) return invalid_argument("versions: must be by number");
    last = version.number;
  }
  auto compiled = compile_versions(persona);
  if (!compiled.ok()) return refused(compiled.error());
  return persona;
}

}  // namespace troupe
