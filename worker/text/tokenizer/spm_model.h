#pragma once

// Reads and checks a tokenizer.model (SentencePiece's protocol buffer) before the library sees it. The
// library trusts its file: an invalid charsmap, a hundred nested symbols or a piece with a NUL make it read
// past its tables or end the process. A model that passes here is safe for it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

struct SpmPiece {
  // The values in the file format.
  enum class Type : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  std::string text;
  float score = 0;
  Type type = Type::kNormal;
  int byte = -1;  // of a kByte
};

struct SpmModel {
  std::vector<SpmPiece> pieces;  // by id
  std::string unknown_surface = " \xE2\x81\x87 ";
  bool is_bpe = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  std::string charsmap;

  // Errors name the piece or part.
  static StatusOr<SpmModel> parse(std::string_view bytes);

 private:
  Status parse_piece(std::string_view message);
  Status parse_trainer(std::string_view message);
  Status parse_normalizer(std::string_view message);
  Status check_pieces() const;
};

// Whether the library can walk a "precompiled_charsmap" (u32 size, double array of that many bytes,
// replacement texts) within bounds for any input.
Status check_charsmap(std::string_view charsmap);

// Returns the model with "add_dummy_prefix" off, whatever it was: encodes a text without a leading space.
std::string without_dummy_prefix(std::string_view bytes);

}  // namespace troupe
