#pragma once

// The forms in which models write calls of tools and thoughts, by the names of vLLM's parsers, and which of
// them a model's chat template shows.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/answer/call_reader.h"

namespace troupe {

struct ToolForm {
  std::string_view name;
  std::vector<std::string_view> calls = {};  // marks, each behind which a call stands
  std::vector<std::string_view> openings =
      {};  // marks that stand before calls, and are text before anything else
  std::vector<std::string_view> endings = {};  // marks that stand behind calls, and are text elsewhere
  char bracket = 0;                            // begins a call where no text stands before it
  char separator = 0;                          // between two calls
  bool short_ids = false;
  bool ends_thought = false;  // its opening does, for models that then leave the thought's end out
  std::unique_ptr<CallReader> (*reader)(bool behind_opening) = nullptr;
};

struct ThoughtForm {
  std::string_view name;
  std::vector<std::string_view> opens, closes;
  std::vector<std::string_view> frames = {};  // marks around what is said, which are part of nothing
  bool only_first = true;                     // a thought stands at the answer's beginning, or nowhere
  bool is_unopened = false;  // an answer begins with its thought, whether the mark is there or not
};

// nullptr: none has that name.
const ToolForm* tool_form(std::string_view name);
const ThoughtForm* thought_form(std::string_view name);
std::vector<std::string_view> tool_form_names();
std::vector<std::string_view> thought_form_names();

// The form that a template's own texts (ChatTemplate::own_texts) show; nullptr: none that is known.
const ToolForm* tool_form_shown(std::span<const std::string> texts);
const ThoughtForm* thought_form_shown(std::span<const std::string> texts);

// All marks of the two, either of which may be nullptr: an answer's text has to keep those of its special
// tokens that are, or are in, one of these.
std::vector<std::string_view> marks_of(const ToolForm* tools, const ThoughtForm* thoughts);

}  // namespace troupe
