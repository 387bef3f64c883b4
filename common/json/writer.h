#pragma once

// JSON in the form of reports: keys in the order they are written, so that equal results are equal bytes.

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe::sim {

// Writes JSON in the order of the calls, with six significant digits: no figure here has more precision.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}
  void open(char bracket) {
    separate();
    out_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    first_ = false;
  }
  void key(std::string_view name) {
    separate();
    append_json_string(out_, name);
    out_ += ':';
    first_ = true;
  }
  void number(double value) {
    separate();
    char digits[40];
    if (!std::isfinite(value)) value = 0;
    out_.append(digits,
                std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6).ptr);
  }
  void number_or_null(double value) {
    if (std::isfinite(value)) return number(value);
    separate();
    out_ += "null";
  }
  void integer(int64_t value) {
    separate();
    absl::StrAppend(&out_, value);
  }
  void text(std::string_view value) {
    separate();
    append_json_string(out_, value);
  }
  void field(std::string_view name, double value) {
    key(name);
    number(value);
  }
  void count(std::string_view name, int64_t value) {
    key(name);
    integer(value);
  }
  void field_or_null(std::string_view name, const std::optional<double>& value) {
    key(name);
    number_or_null(value.value_or(std::nan("")));
  }
  template <typename Range, typename Of>
  void column(std::string_view name, const Range& rows, Of&& of) {
    key(name);
    open('[');
    for (const auto& row : rows) number(static_cast<double>(of(row)));
    close(']');
  }

 private:
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  std::string& out_;
  bool first_ = true;
};

}  // namespace troupe::sim
