#pragma once

// Small text helpers of settings*.cc.

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// In single quotes, clipped, so that an error stays one readable line.
std::string quoted(std::string_view text);
std::string clip_key(std::string_view key);
// "65536", "0.9": no exponent where an integer fits.
std::string number_text(double number);
// "max_num_seqs" ↔ "max-num-seqs"; dots stay.
std::string to_flag(std::string_view key);
std::string to_key(std::string_view flag);
// "; did you mean '<prefix>candidate'?" for the nearest candidate, or nothing where none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix);

}  // namespace troupe
