// Reads only the fields of the protocol buffer that affect encoding; as in the library, others are skipped, a
// repeated message is merged field by field, and the last value of a field counts.

#include "worker/text/tokenizer/spm_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "worker/text/json_fields.h"

namespace troupe {
namespace {

// Limit of nested user-defined symbols (each a prefix of the next): the library's stack has no more room.
constexpr size_t kNestedSymbolsMax = 64;
constexpr size_t kPieceBytesMax = 4096;

struct Field {
  uint32_t number = 0;
  enum class Kind : uint8_t { kVarint, kFixed, kBytes } kind = Kind::kVarint;
  uint64_t value = 0;      // kVarint, kFixed (the bits)
  std::string_view bytes;  // kBytes
};

// Walks the fields of one message.
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  // Returns false at the end, and for bytes that are no message: then ok() is false.
  bool next(Field& field) {
    if (rest_.empty() || !ok_) return false;
    uint64_t tag = varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    if (field.number == 0 || tag >> 32 != 0) ok_ = false;
    switch (tag & 7) {
      case 0:
        field.kind = Field::Kind::kVarint;
        field.value = varint();
        break;
      case 1:
        field.kind = Field::Kind::kFixed;
        field.value = fixed(8);
        break;
      case 2:
        field.kind = Field::Kind::kBytes;
        field.bytes = take(varint());
        break;
      case 5:
        field.kind = Field::Kind::kFixed;
        field.value = fixed(4);
        break;
      default:
        ok_ = false;
    }
    return ok_;
  }
  bool ok() const { return ok_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      std::string_view byte = take(1);
      if (!ok_) return 0;
      value |= static_cast<uint64_t>(byte[0] & 0x7F) << shift;
      if ((byte[0] & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  uint64_t fixed(size_t size) {
    uint64_t value = 0;
    std::string_view bytes = take(size);
    if (!ok_) return 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

Status broken(std::string_view part) {
  return invalid_argument(
      absl::StrCat("not a SentencePiece model: the ", to_absl(part), " is cut off or broken"));
}

int byte_of_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  size_t high = kDigits.find(text[3]);
  size_t low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

}  // namespace

Status SpmModel::parse_piece(std::string_view message) {
  std::string where = absl::StrCat("piece ", pieces.size());
  SpmPiece piece;
  FieldReader fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 1 && field.kind == Field::Kind::kBytes) piece.text = field.bytes;
    if (field.number == 2 && field.kind == Field::Kind::kFixed) {
      std::memcpy(&piece.score, &field.value, sizeof piece.score);
    }
    if (field.number != 3 || field.kind != Field::Kind::kVarint) continue;
    if (field.value < 1 || field.value > 6) {
      return invalid_argument(absl::StrCat(where, ": type ", field.value, " is unknown (1 to 6 are known)"));
    }
    piece.type = static_cast<SpmPiece::Type>(field.value);
  }
  if (!fields.ok()) return broken(where);
  if (piece.text.empty()) return invalid_argument(where + ": empty");
  if (piece.text.size() > kPieceBytesMax || !is_valid_utf8(piece.text) ||
      piece.text.find('\0') != std::string::npos) {
    return invalid_argument(
        absl::StrCat(where, ": expected UTF-8 of at most ", kPieceBytesMax, " bytes without a NUL"));
  }
  if (!std::isfinite(piece.score)) return invalid_argument(where + ": its score is no number");
  if (piece.type == SpmPiece::Type::kByte) {
    piece.byte = byte_of_piece(piece.text);
    if (piece.byte < 0) {
      return invalid_argument(
          absl::StrCat(where, ": \"", piece.text, "\" is a byte, but not of the form <0x41>"));
    }
  }
  pieces.push_back(std::move(piece));
  return {};
}

Status SpmModel::parse_trainer(std::string_view message) {
  FieldReader fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 3 && field.kind == Field::Kind::kVarint) is_bpe = field.value == 2;
    if (field.number == 44 && field.kind == Field::Kind::kBytes) {
      unknown_surface = field.bytes.substr(0, field.bytes.find('\0'));
      if (!is_valid_utf8(unknown_surface)) return invalid_argument("trainer_spec.unk_surface: not UTF-8");
    }
  }
  return fields.ok() ? Status() : broken("trainer_spec");
}

Status SpmModel::parse_normalizer(std::string_view message) {
  FieldReader fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 2 && field.kind == Field::Kind::kBytes) charsmap = field.bytes;
    if (field.kind != Field::Kind::kVarint) continue;
    if (field.number == 3) add_dummy_prefix = field.value != 0;
    if (field.number == 4) remove_extra_whitespaces = field.value != 0;
    if (field.number == 5 && field.value == 0) {
      return absl::UnimplementedError("normalizer_spec.escape_whitespaces: only true is supported");
    }
  }
  return fields.ok() ? Status() : broken("normalizer_spec");
}

Status SpmModel::check_pieces() const {
  if (pieces.empty()) return invalid_argument("not a SentencePiece model: it has no pieces");
  absl::flat_hash_map<std::string_view, size_t> owners;
  std::vector<std::string_view> symbols;
  for (size_t id = 0; id < pieces.size(); ++id) {
    auto [owner, is_new] = owners.emplace(pieces[id].text, id);
    if (!is_new) {
      return invalid_argument(
          absl::StrCat("piece ", id, ": \"", pieces[id].text, "\" is piece ", owner->second, " already"));
    }
    if (pieces[id].type == SpmPiece::Type::kUserDefined) symbols.push_back(pieces[id].text);
  }
  std::sort(symbols.begin(), symbols.end());
  std::vector<std::string_view> nested;  // each begins with the one before it
  for (std::string_view symbol : symbols) {
    while (!nested.empty() && symbol.substr(0, nested.back().size()) != nested.back()) nested.pop_back();
    nested.push_back(symbol);
    if (nested.size() > kNestedSymbolsMax) {
      return invalid_argument(absl::StrCat("user-defined symbols: more than ", kNestedSymbolsMax,
                                           " that begin with one another"));
    }
  }
  return {};
}

StatusOr<SpmModel> SpmModel::parse(std::string_view bytes) {
  SpmModel model;
  FieldReader fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.kind != Field::Kind::kBytes) continue;
    if (field.number == 1) TROUPE_RETURN_IF_ERROR(model.parse_piece(field.bytes));
    if (field.number == 2) TROUPE_RETURN_IF_ERROR(model.parse_trainer(field.bytes));
    if (field.number == 3) TROUPE_RETURN_IF_ERROR(model.parse_normalizer(field.bytes));
    if (field.number == 5) {
      SpmModel denormalizer;
      TROUPE_RETURN_IF_ERROR(denormalizer.parse_normalizer(field.bytes));
      if (!denormalizer.charsmap.empty()) {
        return absl::UnimplementedError("denormalizer_spec: rewriting decoded text is not supported");
      }
    }
    if (model.pieces.size() > static_cast<size_t>(kTokenIdsMax)) {
      return invalid_argument(absl::StrCat("more than ", kTokenIdsMax, " pieces"));
    }
  }
  if (!fields.ok()) return broken("file");
  TROUPE_RETURN_IF_ERROR(model.check_pieces());
  if (!model.charsmap.empty()) TROUPE_RETURN_IF_ERROR(check_charsmap(model.charsmap));
  return model;
}

std::string without_dummy_prefix(std::string_view bytes) {
  // A second normalizer_spec (field 3) is merged into the first: add_dummy_prefix (its field 3) = 0.
  constexpr char kPatch[] = {0x1A, 0x02, 0x18, 0x00};
  return std::string(bytes).append(kPatch, sizeof kPatch);
}

}  // namespace troupe
