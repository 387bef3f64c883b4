#pragma once

// What a record of traffic keeps of a prompt: hashes along its text, by which equal beginnings are known to
// be equal, and lengths. No text can be read in them, and without the salt (which is kept nowhere, or in
// a secret's file) no guess can be tried on them either.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/api/api.h"
#include "common/core/block_hash.h"

namespace troupe {

// Text is hashed in pieces of this many bytes: about half a block of English.
inline constexpr size_t kGrainBytes = 32;

struct PromptFingerprint {
  // Tools (first, where there are any), then one a message; of a plain prompt one every 1,024 bytes.
  struct Part {
    Hash128 end;       // the chain up to and including this part
    size_t bytes = 0;  // of its text, counted as PrefixKey counts
    size_t grains = 0;
    bool answer = false;  // the assistant's
  };
  std::vector<Part> parts;
  std::vector<uint64_t> grains;  // of all parts in order: the chain after each whole grain of a part's text
  int32_t turn = 1;              // of the conversation: its user messages

  size_t heap_bytes() const { return parts.size() * sizeof(Part) + grains.size() * sizeof(uint64_t); }
};

PromptFingerprint prompt_marks(const GenerateRequest& request, Hash128 salt);

}  // namespace troupe
