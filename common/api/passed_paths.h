#pragma once

// POST paths of other servers' APIs, which the gateway passes on as they come.

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe {

inline constexpr std::array<std::string_view, 16> kPassedPaths{"/v1/embeddings",
                                                               "/v1/rerank",
                                                               "/v2/rerank",
                                                               "/rerank",
                                                               "/v1/score",
                                                               "/score",
                                                               "/pooling",
                                                               "/classify",
                                                               "/v1/responses",
                                                               "/v1/messages",
                                                               "/v1/messages/count_tokens",
                                                               "/v1/moderations",
                                                               "/v1/audio/speech",
                                                               "/v1/audio/transcriptions",
                                                               "/v1/audio/translations",
                                                               "/v1/images/generations"};

inline bool is_passed_path(std::string_view path) {
  return std::find(kPassedPaths.begin(), kPassedPaths.end(), path) != kPassedPaths.end();
}

}  // namespace troupe
