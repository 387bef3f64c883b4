#pragma once

// A prompt's fingerprint in a traffic record: hashes along its text, which make equal beginnings
// recognisable, and lengths. No text can be recovered from them, and without the salt (which is stored
// nowhere, or in a secret's file) no guess can be tested on them either.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"

namespace troupe {

// Text is hashed in pieces of this many bytes: about half a block of English.
inline constexpr size_t kGrainBytes = 32;

struct PromptFingerprint {
  // Tools and documents (first, if any), then one part a message; of a plain prompt one every 1,024 bytes.
  struct Part {
    Hash128 end;       // the chain up to and including this part
    size_t bytes = 0;  // of its text, as counted by PrefixKey
    size_t grains = 0;
    bool answer = false;  // by the assistant
  };
  std::vector<Part> parts;
  std::vector<uint64_t> grains;  // of all parts in order: the chain after each whole grain of a part's text
  int32_t turn = 1;              // number of user messages in the conversation

  size_t heap_bytes() const { return parts.size() * sizeof(Part) + grains.size() * sizeof(uint64_t); }
};

PromptFingerprint prompt_marks(const GenerateRequest& request, Hash128 salt);

}  // namespace troupe
