#pragma once

// The causes of lost requests, in the words of reports.

#include <string_view>

#include "gateway/route/request/retry.h"

namespace troupe::sim {

inline constexpr std::string_view kNoNode = "no node to send it to";
inline constexpr std::string_view kNotBegun = "not begun when the run ended";
// The last try's failure.
std::string_view loss_words(const route::Failure& failure);

}  // namespace troupe::sim
