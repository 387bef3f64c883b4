#pragma once

// Reads the fields that say how an answer's text has to look (AnswerFormat): OpenAI's `response_format`,
// vLLM's `structured_outputs` and the `guided_…` before it, llama.cpp's `grammar` and `json_schema`,
// tabbyAPI's `regex_pattern` and `grammar_string`. Private to common/api. Their sources are judged where they
// are compiled, by workers of ours.

#include <string>
#include <string_view>

#include "common/api/read.h"

namespace troupe {

class GivenFormat {
 public:
  static bool knows(std::string_view name);
  // Reads one of these fields. An empty text, list or object is as if it were not there. A second one that
  // says something else is a fault that names both.
  Fault take(std::string_view name, dom::element value, GenerateRequest& request);

 private:
  Fault add(std::string_view name, AnswerFormat format, GenerateRequest& request);
  Fault take_response_format(std::string_view name, dom::object fields, GenerateRequest& request);
  Fault take_structured_outputs(std::string_view name, dom::object fields, GenerateRequest& request);

  std::string first_;  // the field that the request's format is of
};

}  // namespace troupe
