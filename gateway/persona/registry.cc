#include "gateway/persona/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe {

namespace {

ApiError unknown_persona(std::string_view param, std::string_view what) {
  ApiError error = ApiError::bad_field(param, what);
  error.http_status = 404;
  error.code = "persona_not_found";
  return error;
}

ApiError too_many(std::string_view what) {
  ApiError error = ApiError::bad_field("", what);
  error.http_status = 409;
  error.code = "too_many_personas";
  return error;
}

ApiError read_only(std::string_view name) {
  ApiError error = ApiError::bad_field(
      "name", absl::StrCat("'", to_absl(name),
                           "' is read from the gateway's folder (personas.dir): publish under another name"));
  error.http_status = 409;
  error.code = "persona_read_only";
  return error;
}

std::string numbers_of(const Persona& persona) {
  std::string out;
  for (const PersonaVersion& version : persona.versions)
    absl::StrAppend(&out, out.empty() ? "" : ", ", version.number);
  return out;
}

}  // namespace

std::string PersonaVersion::etag() const {
  return absl::StrCat("\"", number, "-", hash_bytes(definition).hex().substr(0, 16), "\"");
}

size_t Persona::bytes() const {
  size_t sum = name.size();
  for (const PersonaVersion& version : versions) sum += version.definition.size();
  return sum;
}

ApiResult<bool> compile_versions(Persona& persona) {
  for (PersonaVersion& version : persona.versions) {
    const auto body = parse_json(version.definition);
    if (!body.ok() || !body->is_object())
      return ApiError::bad_field("definition", "a definition is an object");
    auto definition = parse_persona(body->get_object(), persona.name);
    if (!definition.ok()) return definition.error();
    auto prompt = PersonaPrompt::compile(*std::move(definition));
    if (!prompt.ok()) return prompt.error();
    version.prompt = *std::move(prompt);
  }
  return true;
}

const Persona* PersonaRegistry::at(const Key& key) const {
  const auto found = personas_.find(key);
  return found == personas_.end() ? nullptr : &found->second;
}

const Persona* PersonaRegistry::find_own(std::string_view owner, std::string_view name) const {
  return at({std::string(owner), std::string(name)});
}

const Persona* PersonaRegistry::find(std::string_view owner, std::string_view name) const {
  const Persona* own = find_own(owner, name);
  return own != nullptr || owner.empty() ? own : find_own("", name);
}

ApiResult<PersonaRegistry::Chosen> PersonaRegistry::choose(std::string_view owner,
                                                           const PersonaCall& call) const {
  const Persona* persona = find(owner, call.name);
  if (persona == nullptr)
    return unknown_persona(
        "persona", absl::StrCat("there is no persona '", call.name,
                                "'; PUT /v1/personas/{name} publishes one, GET /v1/personas lists them"));
  if (!call.version) return Chosen{persona, &persona->versions.back()};
  for (const PersonaVersion& version : persona->versions) {
    if (version.number == *call.version) return Chosen{persona, &version};
  }
  return unknown_persona("persona.version", absl::StrCat("'", call.name, "' has no version ", *call.version,
                                                         " any more, or yet; it has ", numbers_of(*persona)));
}

std::vector<const Persona*> PersonaRegistry::visible_to(std::string_view owner) const {
  std::vector<const Persona*> out;
  for (const auto& [key, persona] : personas_) {
    if (key.first == owner || (key.first.empty() && find_own(owner, key.second) == nullptr))
      out.push_back(&persona);
  }
  std::sort(out.begin(), out.end(), [](const Persona* a, const Persona* b) { return a->name < b->name; });
  return out;
}

ApiResult<PersonaRegistry::Change> PersonaRegistry::propose(std::string_view owner, std::string_view name,
                                                            PersonaVersion version) const {
  const Persona* known = find_own(owner, name);
  Change change;
  if (known != nullptr) {
    if (known->from_folder) return read_only(name);
    change.persona = *known;
    if (known->versions.back().definition == version.definition) return change;
    version.number = known->versions.back().number + 1;
  } else {
    const auto count = counts_.find(std::string(owner));
    if (count != counts_.end() && count->second >= options_.per_owner)
      return too_many(
          absl::StrCat("there are ", options_.per_owner, " personas already (personas.per_owner)"));
    change.persona.owner = owner;
    change.persona.name = name;
  }
  change.is_new_version = true;
  auto& versions = change.persona.versions;
  versions.push_back(std::move(version));
  if (versions.size() > static_cast<size_t>(options_.versions))
    versions.erase(versions.begin(), versions.end() - options_.versions);
  const auto before = known == nullptr ? 0 : static_cast<int64_t>(known->bytes());
  if (bytes_ - before + static_cast<int64_t>(change.persona.bytes()) > options_.text_bytes)
    return too_many(
        absl::StrCat("all personas together may have ", options_.text_bytes, " bytes (personas.text_bytes)"));
  return change;
}

void PersonaRegistry::adopt(Persona persona) {
  erase(persona.owner, persona.name);
  bytes_ += static_cast<int64_t>(persona.bytes());
  counts_[persona.owner] += 1;
  Key key{persona.owner, persona.name};
  personas_.emplace(std::move(key), std::move(persona));
}

void PersonaRegistry::erase(std::string_view owner, std::string_view name) {
  const auto found = personas_.find({std::string(owner), std::string(name)});
  if (found == personas_.end()) return;
  bytes_ -= static_cast<int64_t>(found->second.bytes());
  if (--counts_[found->second.owner] == 0) counts_.erase(found->second.owner);
  personas_.erase(found);
}

std::vector<PersonaRegistry::Key> PersonaRegistry::keys() const {
  std::vector<Key> out;
  out.reserve(personas_.size());
  for (const auto& [key, persona] : personas_) out.push_back(key);
  return out;
}

void PersonaRegistry::name_set(const Hash128& set, std::string_view name) {
  std::string& known = sets_.touch(set);
  if (known != name) known = name;
}

std::string PersonaRegistry::name_of(const Hash128& set) const {
  const std::string* name = sets_.find(set);
  return name == nullptr ? std::string() : *name;
}

}  // namespace troupe
