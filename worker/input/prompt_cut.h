#pragma once

// Prompts that may be longer than their context (max_context_length), as front ends with a text field send
// them: the oldest tokens go, those of the part that is to stay do not. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/api/error.h"

namespace troupe {

// Tokens that a prompt may have in so long a context; without max_tokens a quarter of it is the answer's.
// Error: the answer leaves none.
ApiResult<size_t> prompt_room(int64_t context_count, const std::optional<int64_t>& max_tokens);

// A text's first bytes, to the end of a character; its last ones, from the beginning of one.
std::string_view first_bytes(std::string_view text, int64_t bytes_max);
std::string_view last_bytes(std::string_view text, int64_t bytes_max);

// Makes one prompt of the part that stays and of as much of the rest's end as there is room for. Error, of
// `field`: there is none.
ApiResult<std::vector<int32_t>> cut_prompt(std::vector<int32_t> kept, const std::vector<int32_t>& rest,
                                           size_t room, std::string_view field);

}  // namespace troupe
