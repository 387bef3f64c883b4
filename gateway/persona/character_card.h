#pragma once

// Character cards as SillyTavern and others write them (chara_card_v2, chara_card_v3, and the older form
// without a `spec`), as the parts of a persona: description, personality and scenario become its card,
// mes_example its examples, character_book its lore, system_prompt stands before all.
//
// Entries of a book whose place is before or behind the card stand there if they are constant; those that
// words call up stand late all the same, or each of them would change the prompt from its beginning on.

#include "gateway/persona/definition.h"
#include "gateway/persona/fields.h"

namespace troupe {

// Fills `out`, and its warnings with what a card asks for and does not get.
PersonaFault read_character_card(const PersonaFields& card, PersonaDefinition& out);

}  // namespace troupe
