#pragma once

// An answer that goes on with the chat's last message, an assistant's. Its prompt is what the template writes
// before that message's text, and the text in the tokens that it would have had, had the model said it: with
// its white space, which templates trim, and none of its tokens reaching into the template's.

#include <optional>
#include <string>
#include <string_view>

#include "common/api/api.h"
#include "common/core/status.h"

namespace troupe {

// How Transformers finds the place where the last message ends in a rendered chat: a text that no other has
// (U+FDD2, a noncharacter) comes after it. The space that follows shows whether the template trims.
inline constexpr std::string_view kFinalTag = "\xEF\xB7\x92 ";
// The request with the tag behind its last message. REQUIRES: it has messages.
GenerateRequest with_final_tag(const GenerateRequest& request);
// The last message's text as a template writes it that takes text, or else parts.
std::string final_text(const GenerateRequest& request, bool in_parts);

// A rendered chat up to the end of its last message's text. `words` begins where an answer's first token
// does.
struct ContinuedMessage {
  std::string before, words;
};

// An answer that the template would not write as it came: a thought, cut before its end or behind a turn that
// the template opens with one ("<think>"). It is gone on with to the letter, behind `opened`. nullopt: it is
// none such. Arguments as split_final_message's; for messages whose thoughts are in their text.
std::optional<ContinuedMessage> as_generated(std::string_view rendered, std::string_view opened,
                                             std::string_view text);

// `rendered`: of such a request. `opened`: the messages before the last, rendered with the assistant's turn
// opened; empty where the template refuses that. `text`: the last message's, as the template was given it but
// for the tag. Where the template writes another text (it may leave thoughts out), that is gone on with.
StatusOr<ContinuedMessage> split_final_message(std::string rendered, std::string_view opened,
                                               std::string_view text);

}  // namespace troupe
