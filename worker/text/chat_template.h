#pragma once

// Chat templates: the Jinja subset that published templates use, under Hugging Face's settings (trim_blocks,
// lstrip_blocks, loop controls; tojson = json.dumps(ensure_ascii=False); raise_exception; strftime_now).
// Immutable after parse; render() is safe from many threads. Bounded: a render stops with an error after
// `steps_max` evaluation steps (text that it reads counts as steps), `output_bytes_max` of output, or eight
// times that of strings made on the way, so a runaway template cannot hang or eat the machine.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/template_roles.h"

namespace troupe {

// The most that a template's file may have; ChatTemplate::Limits bounds the template itself.
inline constexpr size_t kTemplateFileBytesMax = 4u << 20;

inline constexpr std::string_view kDefaultTemplate = "default";
inline constexpr std::string_view kToolTemplate = "tool_use";  // where a request has tools

class ChatTemplate {
 public:
  struct Limits {
    int64_t steps_max = 2'000'000;
    size_t output_bytes_max = 16u << 20;
    size_t source_bytes_max = 256u << 10;
  };

  // Errors name the line and what was expected.
  static StatusOr<std::unique_ptr<ChatTemplate>> parse(std::string_view source);
  static StatusOr<std::unique_ptr<ChatTemplate>> parse(std::string_view source, const Limits& limits);
  // Reads chat_template.jinja (another than the default: additional_chat_templates/NAME.jinja), or, without
  // that file, tokenizer_config.json's chat_template (a string, or named ones: a list or an object).
  // kNotFound if the directory has none of that name.
  static StatusOr<std::unique_ptr<ChatTemplate>> load(const std::string& model_dir,
                                                      std::string_view name = kDefaultTemplate);
  // The names of all that load() finds there, sorted. None for a directory or a field that cannot be read.
  static std::vector<std::string> names(const std::string& model_dir);
  ~ChatTemplate();

  // Every key of `context` (an object) is a template variable; `now` ("YYYY-MM-DD
  // HH:MM:SS") fixes strftime_now.
  StatusOr<std::string> render(const bj::object& context) const;
  // The texts that the template writes itself: between its tags, and in its string literals.
  std::vector<std::string> own_texts() const;
  // Puts `map` through each of them for render_mapped(), which is render() before.
  void map_own_texts(const std::function<std::optional<std::string>(std::string_view)>& map);
  StatusOr<std::string> render_mapped(const bj::object& context) const;
  const TemplateTraits& traits() const;
  // Finds out, by rendering, which roles it shows and how it takes content (template_probe.h). load() does.
  void probe();

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
