// The edge of the interpreter in jinja/: sources and contexts come in as JSON and files, JinjaErrors leave as
// Status. Every render gets a Runtime of its own, so one parsed template serves many threads.

#include "worker/text/chat_template.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "common/json/wide_integers.h"
#include "worker/text/jinja/parser.h"
#include "worker/text/jinja/run.h"
#include "worker/text/json_fields.h"
#include "worker/text/template_probe.h"

namespace troupe {
namespace {

std::string_view view(bj::string_view text) {
  return {text.data(), text.size()};
}

jinja::Value wide_value(std::string digits) {
  return jinja::Value(
      std::shared_ptr<jinja::Object>(std::make_shared<jinja::WideInteger>(std::move(digits))));
}

jinja::Value to_value(const bj::value& json) {
  switch (json.kind()) {
    case bj::kind::null:
      return jinja::Value(jinja::None{});
    case bj::kind::bool_:
      return jinja::Value(json.get_bool());
    case bj::kind::int64:
      return jinja::Value(int64_t{json.get_int64()});
    case bj::kind::uint64:
      if (json.get_uint64() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return wide_value(std::to_string(json.get_uint64()));
      }
      return jinja::Value(static_cast<int64_t>(json.get_uint64()));
    case bj::kind::double_:
      return jinja::Value(json.get_double());
    case bj::kind::string:
      if (const auto digits = wide_integer_of(view(json.get_string())); !digits.empty())
        return wide_value(std::string(digits));
      return jinja::Value(view(json.get_string()));
    case bj::kind::array: {
      std::vector<jinja::Value> items;
      for (const bj::value& item : json.get_array()) items.push_back(to_value(item));
      return jinja::make_list(std::move(items));
    }
    case bj::kind::object:
      break;
  }
  jinja::Dict dict;
  for (const auto& entry : json.get_object()) {
    dict.set(jinja::Value(std::string_view(entry.key().data(), entry.key().size())), to_value(entry.value()));
  }
  return jinja::make_dict(std::move(dict));
}

Status to_status(const jinja::JinjaError& error) {
  if (error.line == 0) return invalid_argument(error.what());
  return invalid_argument(absl::StrCat("line ", error.line, ": ", error.what()));
}

// Returns the template of that name in a chat_template field: itself ("default"), a list of {name, template},
// or an object with names as keys. kNotFound if it has none.
StatusOr<std::string> template_source(const bj::value& value, std::string_view wanted,
                                      const std::string& where) {
  const Status missing =
      absl::NotFoundError(absl::StrCat(where, ": none is named \"", to_absl(wanted), "\""));
  if (value.is_string()) {
    return wanted == kDefaultTemplate ? StatusOr<std::string>(std::string(view(value.get_string())))
                                      : missing;
  }
  if (value.is_object()) {
    const JsonItem templates{&value.get_object(), where};
    return find_field(templates, wanted) != nullptr ? string_field(templates, wanted) : missing;
  }
  if (!value.is_array()) {
    return invalid_argument(where + ": expected a string, a list of {name, template} or an object, found " +
                            std::string(json_kind(value)));
  }
  StatusOr<std::string> found = missing;
  for (const bj::value& entry : value.get_array()) {
    TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(entry, where + "[]"));
    TROUPE_ASSIGN_OR_RETURN(std::string name, string_field(item, "name"));
    TROUPE_ASSIGN_OR_RETURN(std::string source, string_field(item, "template"));
    if (name == wanted) found = std::move(source);  // the last of a name counts
  }
  return found;
}

std::vector<std::string> names_in(const bj::value& value) {
  std::vector<std::string> names;
  if (value.is_string()) names.emplace_back(kDefaultTemplate);
  if (value.is_object()) {
    for (const auto& entry : value.get_object()) {
      if (!entry.value().is_null()) names.emplace_back(view(entry.key()));
    }
  }
  if (!value.is_array()) return names;
  for (const bj::value& entry : value.get_array()) {
    const bj::value* name = entry.is_object() ? entry.get_object().if_contains("name") : nullptr;
    if (name != nullptr && name->is_string()) names.emplace_back(view(name->get_string()));
  }
  return names;
}

// A template and the file and key it comes from, for errors.
struct Source {
  std::string text, where;
};

StatusOr<Source> read_template_file(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(std::string text, read_regular_file(path, kTemplateFileBytesMax));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return Source{std::move(text), path};
}

StatusOr<Source> find_source(const std::string& model_dir, std::string_view name) {
  const std::string main = model_dir + "/chat_template.jinja";
  const std::string config = model_dir + "/tokenizer_config.json";
  const std::string other = absl::StrCat(model_dir, "/additional_chat_templates/", to_absl(name), ".jinja");
  if (name != kDefaultTemplate && path_exists(other)) return read_template_file(other);
  // Beside templates in files those of tokenizer_config.json do not count.
  if (path_exists(main)) {
    if (name == kDefaultTemplate) return read_template_file(main);
    return absl::NotFoundError(other + ": not found");
  }
  if (!path_exists(config)) {
    return absl::NotFoundError(model_dir + ": neither chat_template.jinja nor tokenizer_config.json");
  }
  TROUPE_ASSIGN_OR_RETURN(bj::value content, read_json_file(config));
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(content, config));
  const bj::value* field = find_field(item, "chat_template");
  const std::string where = config + ": chat_template";
  if (field == nullptr) return absl::NotFoundError(where + ": missing");
  TROUPE_ASSIGN_OR_RETURN(std::string text, template_source(*field, name, where));
  return Source{std::move(text), where};
}

bool is_own_text(const jinja::Token& token) {
  return token.type == jinja::TokenType::kData || token.type == jinja::TokenType::kString;
}

// The name of the role, in a literal, is what a template needs to treat it apart from others.
bool names_developer(std::string_view source) {
  return source.find("'developer'") != std::string_view::npos ||
         source.find("\"developer\"") != std::string_view::npos;
}

}  // namespace

struct ChatTemplate::Impl {
  Limits limits;
  std::vector<jinja::Token> tokens;
  jinja::Block block;
  std::optional<jinja::Block> mapped;
  TemplateTraits traits;

  StatusOr<std::string> render(const jinja::Block& root, const bj::object& context) const;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  return parse(source, Limits());
}

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return invalid_argument(
        absl::StrCat("a template of ", source.size(), " bytes: at most ", limits.source_bytes_max));
  }
  if (!is_valid_utf8(source)) return invalid_argument("the template is not valid UTF-8");
  auto impl = std::make_unique<Impl>();
  impl->limits = limits;
  try {
    impl->tokens = jinja::tokenize(source);
    impl->block = jinja::Parser(impl->tokens).parse_template();
  } catch (const jinja::JinjaError& error) {
    return to_status(error);
  }
  impl->traits.knows_developer = names_developer(source);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

void ChatTemplate::probe() {
  impl_->traits = probed_traits([this](const bj::object& context) { return render(context); }, impl_->traits);
}

std::vector<std::string> ChatTemplate::own_texts() const {
  std::vector<std::string> texts;
  for (const jinja::Token& token : impl_->tokens) {
    if (is_own_text(token)) texts.push_back(token.text);
  }
  return texts;
}

void ChatTemplate::map_own_texts(const std::function<std::optional<std::string>(std::string_view)>& map) {
  std::vector<jinja::Token> tokens = impl_->tokens;
  for (jinja::Token& token : tokens) {
    if (is_own_text(token)) token.text = map(token.text).value_or(token.text);
  }
  // It has parsed: other texts make no other syntax.
  impl_->mapped = jinja::Parser(std::move(tokens)).parse_template();
}

const TemplateTraits& ChatTemplate::traits() const {
  return impl_->traits;
}

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::load(const std::string& model_dir,
                                                           std::string_view name) {
  TROUPE_ASSIGN_OR_RETURN(const Source source, find_source(model_dir, name));
  StatusOr<std::unique_ptr<ChatTemplate>> parsed = parse(source.text);
  if (!parsed.ok()) return annotate(parsed.status(), source.where);
  (*parsed)->probe();
  return parsed;
}

std::vector<std::string> ChatTemplate::names(const std::string& model_dir) {
  constexpr size_t kNamesMax = 64;
  std::set<std::string> names;
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(model_dir + "/additional_chat_templates", fault), end;
       !fault && entry != end && names.size() < kNamesMax; entry.increment(fault)) {
    if (entry->path().extension() == ".jinja") names.insert(entry->path().stem().string());
  }
  if (path_exists(model_dir + "/chat_template.jinja")) {
    names.emplace(kDefaultTemplate);
    return {names.begin(), names.end()};
  }
  const auto config = read_json_file(model_dir + "/tokenizer_config.json");
  const bj::value* field = nullptr;
  if (config.ok() && config->is_object()) field = config->get_object().if_contains("chat_template");
  for (const std::string& name : field == nullptr ? std::vector<std::string>() : names_in(*field)) {
    if (names.size() < kNamesMax && name.find('/') == std::string::npos) names.insert(name);
  }
  return {names.begin(), names.end()};
}

StatusOr<std::string> ChatTemplate::render(const bj::object& context) const {
  return impl_->render(impl_->block, context);
}

StatusOr<std::string> ChatTemplate::render_mapped(const bj::object& context) const {
  return impl_->render(impl_->mapped ? *impl_->mapped : impl_->block, context);
}

StatusOr<std::string> ChatTemplate::Impl::render(const jinja::Block& root, const bj::object& context) const {
  try {
    jinja::Dict variables;
    std::string now;
    for (const auto& entry : context) {
      if (entry.key() == "now" && entry.value().is_string()) now = view(entry.value().get_string());
      variables.set(jinja::Value(std::string_view(entry.key().data(), entry.key().size())),
                    to_value(entry.value()));
    }
    const jinja::RuntimeLimits bounds{limits.steps_max, limits.output_bytes_max};
    return jinja::render(root, bounds, std::move(variables), std::move(now));
  } catch (const jinja::JinjaError& error) {
    return to_status(error);
  }
}

}  // namespace troupe
