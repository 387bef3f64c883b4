#pragma once

// Decides from how many shared keys on it is faster to read them once for a group of requests (a cascade)
// than once for each. A cascade costs one more pass and the merge of its sums. Pure; the times of both ways
// come from the caller.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::cuda {

class CascadeGate {
 public:
  static constexpr int32_t kRequestsMin = 2;
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  // Groups of 2 to 3 requests, of 4 to 7, … of 256 and more.
  static constexpr size_t kSizes = 8;
  static size_t size_of(int32_t requests);                                  // REQUIRES: at least two
  static int32_t requests_of(size_t size) { return kRequestsMin << size; }  // the fewest

  // The rule where nothing was measured: four requests, 256 keys. A guess, until a device shows otherwise.
  static CascadeGate guessed();
  static CascadeGate always();

  bool takes(int32_t requests, int32_t keys) const {
    return requests >= kRequestsMin && keys >= keys_min_[size_of(requests)];
  }
  // No group takes fewer.
  int32_t keys_min() const;
  int32_t& keys_min(size_t size) { return keys_min_[size]; }
  int32_t keys_min(size_t size) const { return keys_min_[size]; }

  // "2:never 4:512 8:256 …", and back; nothing where it is none.
  std::string text() const;
  static std::optional<CascadeGate> parse(std::string_view text);

 private:
  std::array<int32_t, kSizes> keys_min_{};
};

// Seconds of an attention of so many decoding requests that share so many keys; nothing: too many for this
// model, or for its memory.
using CascadeSeconds = std::function<std::optional<double>(int32_t requests, int32_t keys, bool cascade)>;
// Takes as given what theory says: more keys, and more requests, only save more.
CascadeGate measure_cascade_gate(const CascadeSeconds& seconds);

}  // namespace troupe::cuda
