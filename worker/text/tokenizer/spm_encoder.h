#pragma once

// Isolates the SentencePiece library: its header and abseil's cannot share a translation unit, so neither is
// included here. Immutable after load; encode() is safe from many threads.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class SpmEncoder {
 public:
  // Returns null and sets `error` if the library refuses the model. REQUIRES: SpmModel::parse accepted it.
  static std::unique_ptr<SpmEncoder> load(std::string_view model, std::string& error);
  virtual ~SpmEncoder() = default;

  // Appends the ids of a text; returns false and sets `error` if the library gives up.
  virtual bool encode(std::string_view text, std::vector<int32_t>& ids, std::string& error) const = 0;
};

}  // namespace troupe
