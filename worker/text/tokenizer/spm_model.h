#pragma once

// A tokenizer.model (SentencePiece's protocol buffer) read and checked by ourselves before the library sees
// it. The library trusts its file: a charsmap that lies, a hundred nested symbols or a piece with a NUL make
// it read past its tables or end the process. What passes here, it can work with.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

struct SpmPiece {
  // The values of the file format.
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
// replacement texts) for any input without leaving it.
Status check_charsmap(std::string_view charsmap);

// The model with "add_dummy_prefix" off, whatever it said: encodes a text without a leading space.
std::string without_dummy_prefix(std::string_view bytes);

}  // namespace troupe
