#pragma once

// A worker's refusal of a request that is longer than its context: another one's may be longer.

#include <string_view>

#include "gateway/route/request/retry.h"

namespace troupe {

// Sets too_long and context_max of a refusal with `failure`'s http_status (400, 413, 422, 500) whose body
// says so: by OpenAI's code `context_length_exceeded`, llama.cpp's type `exceed_context_size_error`, or in
// the words of vLLM, SGLang, llama.cpp, Ollama and TGI, which have no code of their own for it.
void note_length_refusal(std::string_view body, route::Failure& failure);

}  // namespace troupe
