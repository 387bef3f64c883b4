#pragma once

// The SentencePiece library behind a wall: its header and abseil's cannot share a translation unit, so
// nothing of either shows here. Immutable after load; encode() is safe from many threads.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class SpmEncoder {
 public:
  // Null where the library refuses the model: then `error` says why. REQUIRES: SpmModel::parse accepted it.
  static std::unique_ptr<SpmEncoder> load(std::string_view model, std::string& error);
  virtual ~SpmEncoder() = default;

  // Appends the ids of a text; false and `error` where the library gives up.
  virtual bool encode(std::string_view text, std::vector<int32_t>& ids, std::string& error) const = 0;
};

}  // namespace troupe
