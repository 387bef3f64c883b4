// Finds the position of an error in a refused text. simdjson's DOM does not report it, so Boost.JSON's parser
// reads the text once more with a handler that keeps nothing; its stop is the offset. It never decides
// whether a text is accepted.

#include <boost/json/basic_parser_impl.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/json/dom.h"

namespace troupe {

namespace {

// Accepts everything but the numbers that Boost.JSON would round or turn into infinity.
struct LocateHandler {
  using ec_t = boost::json::error_code;
  using sv = boost::json::string_view;
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  bool on_document_begin(ec_t&) { return true; }
  bool on_document_end(ec_t&) { return true; }
  bool on_object_begin(ec_t&) { return true; }
  bool on_object_end(size_t, ec_t&) { return true; }
  bool on_array_begin(ec_t&) { return true; }
  bool on_array_end(size_t, ec_t&) { return true; }
  bool on_key_part(sv, size_t, ec_t&) { return true; }
  bool on_key(sv, size_t, ec_t&) { return true; }
  bool on_string_part(sv, size_t, ec_t&) { return true; }
  bool on_string(sv, size_t, ec_t&) { return true; }
  bool on_number_part(sv, ec_t&) { return true; }
  bool on_int64(int64_t, sv, ec_t&) { return true; }
  bool on_uint64(uint64_t, sv, ec_t&) { return true; }
  bool on_double(double number, sv text, ec_t& ec) {
    const bool is_integer = text.find_first_of(".eE") == sv::npos;
    if (std::isfinite(number) && !is_integer) return true;
    ec = boost::json::error::exponent_overflow;
    return false;
  }
  bool on_bool(bool, ec_t&) { return true; }
  bool on_null(ec_t&) { return true; }
  bool on_comment_part(sv, ec_t&) { return true; }
  bool on_comment(sv, ec_t&) { return true; }
};

}  // namespace

std::string locate_json_error(std::string_view text, int depth_max) {
  boost::json::parse_options options;
  options.max_depth = static_cast<size_t>(depth_max);
  boost::json::basic_parser<LocateHandler> parser(options);
  boost::json::error_code ec;
  const size_t offset = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && offset == text.size()) return {};
  return absl::StrCat(" at byte ", offset);
}

}  // namespace troupe
