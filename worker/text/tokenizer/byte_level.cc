#include "worker/text/tokenizer/byte_level.h"

#include <array>

#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstShifted = 0x100;
constexpr char32_t kShiftedCount = 68;

constexpr std::array<char32_t, 256> make_code_points() {
  std::array<char32_t, 256> table{};
  char32_t next = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<size_t>(byte)] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return table;
}

constexpr std::array<char32_t, 256> kCodePoints = make_code_points();
static_assert(kCodePoints[0xAD] == kFirstShifted + kShiftedCount - 1);

constexpr std::array<uint8_t, kShiftedCount> make_shifted_bytes() {
  std::array<uint8_t, kShiftedCount> table{};
  for (size_t byte = 0; byte < 256; ++byte) {
    if (kCodePoints[byte] >= kFirstShifted)
      table[kCodePoints[byte] - kFirstShifted] = static_cast<uint8_t>(byte);
  }
  return table;
}

constexpr std::array<uint8_t, kShiftedCount> kShiftedBytes = make_shifted_bytes();

}  // namespace

void append_byte_level(std::string& out, std::string_view text) {
  for (char c : text) append_utf8(out, kCodePoints[static_cast<unsigned char>(c)]);
}

int byte_of_code_point(char32_t c) {
  if (c < kFirstShifted) return stands_for_itself(static_cast<int>(c)) ? static_cast<int>(c) : -1;
  if (c < kFirstShifted + kShiftedCount) return kShiftedBytes[c - kFirstShifted];
  return -1;
}

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    int byte = byte_of_code_point(next_code_point(token, pos));
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace troupe
