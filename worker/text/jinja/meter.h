#pragma once

// Counts a render's cost and stops it at a limit. Most of the code that reads text lies far below the Runtime
// (a look-up reads its key, a sort lower-cases its items), so a function finds its thread's current meter by
// itself, and reading text is never free for lack of a Runtime. The rule: code that reads or copies n bytes
// of text charges n before it stores the copy. Outside of a render nothing is counted.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::jinja {

// Bytes of text read for one step; also characters looked up in Unicode's tables.
inline constexpr int64_t kTextBytesAStep = 256;
inline constexpr int64_t kCharactersAStep = 64;
// Cost of comparing or copying one part of a list or dict, as bytes of text.
inline constexpr size_t kPartBytes = 32;

class Meter {
 public:
  // All strings of a template together may be this many times larger than its output limit.
  static constexpr size_t kTextToOutputMax = 8;

  Meter(int64_t steps_max, size_t output_bytes_max)
      : steps_max_(steps_max), made_bytes_max_(kTextToOutputMax * output_bytes_max) {}
  // Throw JinjaError beyond a limit.
  void step(int64_t count) { read(count * kTextBytesAStep); }
  void read(int64_t bytes);
  void make(size_t bytes);

 private:
  int64_t steps_max_;
  size_t made_bytes_max_;
  int64_t read_bytes_ = 0;  // kTextBytesAStep of them are a step
  size_t made_bytes_ = 0;
};

// Sends this thread's charges to `meter` until the end of the scope. REQUIRES: `meter` lives longer.
class MeterScope {
 public:
  explicit MeterScope(Meter& meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  Meter* outer_;
};

// Charges text that is read, compared, hashed or copied temporarily.
void charge_read(size_t bytes);
// Charges text whose characters are each looked up: letter, case, white space.
void charge_characters(size_t bytes);
// Charges text that a value keeps.
void charge_made(size_t bytes);

// Shortens a name for a message: only the beginning of a long one.
std::string_view clipped(std::string_view name);
std::string_view clipped(std::string_view text, size_t bytes_max);

}  // namespace troupe::jinja
