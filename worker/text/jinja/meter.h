#pragma once

// What a render has cost, and where it is stopped. Most of the code that goes through text lies far below the
// Runtime (a look-up reads its key, a sort lower-cases what it sorts), so a function finds the meter of the
// render that its thread is in by itself: one that reads text cannot be written without a price because no
// Runtime was at hand. The rule: whoever reads or copies n bytes of text charges for n, before where the copy
// is kept. Outside of a render nothing is counted.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::jinja {

// Bytes of text that may be read for one step, and characters that may be looked up in Unicode's tables.
inline constexpr int64_t kTextBytesAStep = 256;
inline constexpr int64_t kCharactersAStep = 64;
// What comparing or copying one part of a list or dict costs, as bytes of text.
inline constexpr size_t kPartBytes = 32;

class Meter {
 public:
  // All the strings a template makes may be so many times larger than what it may put out.
  static constexpr size_t kTextToOutputMax = 8;

  Meter(int64_t steps_max, size_t output_bytes_max)
      : steps_max_(steps_max), made_bytes_max_(kTextToOutputMax * output_bytes_max) {}
  // Throw JinjaError once it was too much.
  void step(int64_t count) { read(count * kTextBytesAStep); }
  void read(int64_t bytes);
  void make(size_t bytes);

 private:
  int64_t steps_max_;
  size_t made_bytes_max_;
  int64_t read_bytes_ = 0;  // a step is kTextBytesAStep of them
  size_t made_bytes_ = 0;
};

// The meter that this thread's charges go to, until the end of the scope. REQUIRES: `meter` lives longer.
class MeterScope {
 public:
  explicit MeterScope(Meter& meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  Meter* outer_;
};

// Text that is read, compared, hashed or copied for a moment.
void charge_read(size_t bytes);
// Text whose characters are each looked up: letter, case, white space.
void charge_characters(size_t bytes);
// Text that a value keeps.
void charge_made(size_t bytes);

// A name for a message: of a long one only its beginning.
std::string_view clipped(std::string_view name);
std::string_view clipped(std::string_view text, size_t bytes_max);

}  // namespace troupe::jinja
