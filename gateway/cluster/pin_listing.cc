#include "gateway/cluster/pin_listing.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/prefix.h"
#include "common/json/json.h"

namespace troupe {
namespace {

Status malformed(std::string_view field) {
  return invalid_argument(absl::StrCat("a worker's list of prefixes: ", to_absl(field), ": is malformed"));
}

std::string_view text_in(const bj::object& fields, std::string_view name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

// 0: there is none.
int64_t count_in(const bj::object& fields, std::string_view name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_int64() && value->get_int64() > 0 ? value->get_int64() : 0;
}

bool is_true(const bj::object& fields, std::string_view name) {
  const bj::value* value = fields.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

StatusOr<std::vector<std::string>> owners_in(const bj::object& fields) {
  std::vector<std::string> owners;
  const bj::value* value = fields.if_contains("owners");
  if (value == nullptr) return owners;  // a worker of an older version
  if (!value->is_array()) return malformed("owners");
  for (const bj::value& owner : value->get_array()) {
    if (!owner.is_string() || owner.get_string().empty()) return malformed("owners");
    owners.emplace_back(std::string_view(owner.get_string()));
  }
  return owners;
}

StatusOr<route::Pin> read_pin(bj::object fields, TimePoint now) {
  route::Pin pin;
  const auto prefix = parse_prefix_id(text_in(fields, "id"));
  if (!prefix) return malformed("id");
  pin.prefix = *prefix;
  pin.model = text_in(fields, "model");
  if (pin.model.empty()) return malformed("model");
  pin.tokens = count_in(fields, "tokens");
  pin.key.set = Hash128::from_hex(text_in(fields, "set")).value_or(Hash128{});
  if (const int64_t left_s = count_in(fields, "left_s"); left_s > 0) {
    pin.expires = true;
    pin.until = now + std::chrono::seconds(std::min(left_s, kPrefixTtlMaxS));
  }
  fields.erase("owners");
  fields.erase("left_s");
  pin.answer = to_json(fields);
  return pin;
}

}  // namespace

StatusOr<std::vector<route::Pin>> parse_pin_listing(std::string_view json, TimePoint now, bool ownerless) {
  JsonLimits limits;
  limits.bytes_max = kPinListingBytesMax;
  TROUPE_ASSIGN_OR_RETURN(const bj::value root, parse_json(json, limits));
  const bj::value* data = root.is_object() ? root.get_object().if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array()) return malformed("data");
  std::vector<route::Pin> pins;
  for (const bj::value& item : data->get_array()) {
    if (!item.is_object()) return malformed("data");
    if (!is_true(item.get_object(), "pinned")) continue;
    TROUPE_ASSIGN_OR_RETURN(std::vector<std::string> owners, owners_in(item.get_object()));
    if (owners.empty() != ownerless) continue;
    if (ownerless) owners.emplace_back();
    TROUPE_ASSIGN_OR_RETURN(const route::Pin pin, read_pin(item.get_object(), now));
    for (std::string& owner : owners) {
      route::Pin& one = pins.emplace_back(pin);
      one.owner = std::move(owner);
      one.id = route::Pin::id_of(one.prefix, one.owner);
    }
  }
  return pins;
}

}  // namespace troupe
