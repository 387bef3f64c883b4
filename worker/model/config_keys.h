#pragma once

// Reads keys of one JSON object, each with its type and range; null counts as absent. Errors name the key,
// the value found and the values allowed. Shared by config.cc and the families' own readers.

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"

namespace troupe {

struct IntRange {
  int64_t min = 0;
  int64_t max = 0;
};

class ConfigKeys {
 public:
  // `object` must outlive this. `prefix` ("rope_scaling.") precedes every key in errors.
  ConfigKeys(const boost::json::object& object, std::string prefix);

  const boost::json::value* find(std::string_view key) const;  // null where absent or null
  bool stated(std::string_view key) const;                     // present, if only as null

  Status error(std::string_view key, std::string_view reason) const;
  // "key 'x': 7 is not supported; must be <wanted>"
  Status wrong(std::string_view key, const boost::json::value& value, std::string_view wanted) const;

  // 3.0 is an integer.
  StatusOr<std::optional<int64_t>> integer(std::string_view key, IntRange range) const;
  StatusOr<int64_t> required_integer(std::string_view key, IntRange range) const;
  StatusOr<std::optional<double>> number(std::string_view key, double min, double max) const;
  StatusOr<std::optional<bool>> boolean(std::string_view key) const;
  StatusOr<std::optional<std::string>> string(std::string_view key) const;
  // An integer or a list of them; absent → empty. What is no id of the vocabulary in a list goes to
  // `unusable` as JSON text, cut off where it is long.
  StatusOr<std::vector<int32_t>> token_ids(std::string_view key, int64_t vocab_size,
                                           std::vector<std::string>& unusable) const;

 private:
  const boost::json::object& object_;
  std::string prefix_;
};

}  // namespace troupe
