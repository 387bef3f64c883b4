#pragma once

// No part of a request's text becomes a special token, whatever its template does with it: puts it in lower
// case, takes signs out, writes two texts one after the other. The special tokens that a template writes
// itself are marked (cut_text.h) before it is rendered; every other one that the prompt spells is text.
//
// A template may put its tokens together from pieces ('<|' + role + '|>'), which no mark can stand before.
// These are found when the model is loaded, in the template's texts and in small chats that it renders: they
// are tokens wherever the prompt spells them, but for the cuts of the request's texts, as are those that are
// words or short.

#include <span>

#include "worker/input/served_model.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/cut_text.h"

namespace troupe {

// Sets `model.own_tokens` from its tokenizer and special tokens, and marks the templates, which are its own.
void mark_own_tokens(ServedModel& model, std::span<ChatTemplate* const> templates);

// Cuts the special tokens of a rendered chat that are not its template's own. `prompt`: without_marks() of
// what such a template rendered.
void cut_other_tokens(const ServedModel& model, CutText& prompt);

}  // namespace troupe
