#include "common/api/residency.h"

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr size_t kNameBytesMax = 1024;

using Kind = ResidencyEvent::Kind;
constexpr std::pair<std::string_view, Kind> kEventNames[] = {
    {"snapshot", Kind::kSnapshot}, {"admitted", Kind::kAdmitted}, {"evicted", Kind::kEvicted}};

std::string_view event_name(Kind kind) {
  for (const auto& [name, named] : kEventNames) {
    if (named == kind) return name;
  }
  return "";
}

std::string_view item_name(HolderKind kind) {
  return kind == HolderKind::kSet ? "set" : "session";
}

// Appends "set":"…","tokens":n,"pinned":false
void append_item(std::string& out, const ResidencyItem& item) {
  absl::StrAppend(&out, "\"", to_absl(item_name(item.kind)), "\":\"", item.name.hex(),
                  "\",\"tokens\":", item.tokens);
  if (item.kind == HolderKind::kSet) out += item.pinned ? ",\"pinned\":true" : ",\"pinned\":false";
}

void append_list(std::string& out, std::span<const ResidencyItem> items, HolderKind kind) {
  absl::StrAppend(&out, ",\"", to_absl(item_name(kind)), "s\":[");
  bool first = true;
  for (const ResidencyItem& item : items) {
    if (item.kind != kind) continue;
    out += first ? "{" : ",{";
    append_item(out, item);
    out += '}';
    first = false;
  }
  out += ']';
}

// Reads the fields of one item; `found` is false if it names neither a set nor a session.
Fault read_item(const std::string& path, dom::object fields, ResidencyItem& item, bool& found) {
  found = false;
  for (const auto field : fields) {
    if (field.key == "tokens") {
      if (auto fault = read_integer(path + "tokens", field.value, {.min = 0}, item.tokens)) return fault;
    }
    if (field.key == "pinned") {
      if (auto fault = read_bool(path + "pinned", field.value, item.pinned)) return fault;
    }
    if (field.key != "set" && field.key != "session") continue;
    std::string_view text;
    const auto name = field.value.get(text) ? std::nullopt : Hash128::from_hex(text);
    if (!name) return expected(path + std::string(field.key), "32 hex digits", field.value);
    item.kind = field.key == "set" ? HolderKind::kSet : HolderKind::kSession;
    item.name = *name;
    found = true;
  }
  return std::nullopt;
}

Fault read_list(const dom::object& fields, std::string_view name, std::vector<ResidencyItem>& items) {
  dom::array list;
  if (fields.at_key(name).get(list)) return missing(name, "an array");
  size_t index = 0;
  for (const dom::element value : list) {
    const std::string path = absl::StrCat(to_absl(name), "[", index++, "]");
    dom::object item_fields;
    if (value.get(item_fields)) return expected(path, "an object", value);
    ResidencyItem item;
    bool found = false;
    if (auto fault = read_item(path + ".", item_fields, item, found)) return fault;
    if (!found) return missing(path, "a set or a session");
    items.push_back(item);
  }
  return std::nullopt;
}

Fault read_event(const dom::object& fields, ResidencyEvent& event) {
  for (const auto field : fields) {
    int64_t seq = 0;
    Fault fault;
    if (field.key == "epoch") fault = read_string("epoch", field.value, kNameBytesMax, event.epoch);
    if (field.key == "seq") {
      fault = read_integer("seq", field.value, {.min = 0}, seq);
      event.seq = static_cast<uint64_t>(seq);
    }
    if (fault) return fault;
  }
  if (event.epoch.empty()) return missing("epoch", "a string that is not empty");
  if (event.kind == Kind::kSnapshot) {
    if (auto fault = read_list(fields, "sets", event.items)) return fault;
    return read_list(fields, "sessions", event.items);
  }
  ResidencyItem item;
  bool found = false;
  if (auto fault = read_item("", fields, item, found)) return fault;
  if (!found) return missing("set", "32 hex digits, or a session");
  event.items.push_back(item);
  return std::nullopt;
}

}  // namespace

void append_residency_event(std::string& out, Kind kind, std::string_view epoch, uint64_t seq,
                            std::span<const ResidencyItem> items) {
  absl::StrAppend(&out, "event: ", to_absl(event_name(kind)), "\ndata: {\"epoch\":");
  append_json_string(out, epoch);
  absl::StrAppend(&out, ",\"seq\":", seq);
  if (kind == Kind::kSnapshot) {
    append_list(out, items, HolderKind::kSet);
    append_list(out, items, HolderKind::kSession);
  } else {
    out += ',';
    append_item(out, items.front());
  }
  out += "}\n\n";
}

ApiResult<ResidencyEvent> parse_residency_event(std::string_view name, std::string_view data) {
  ResidencyEvent event;
  bool known = false;
  for (const auto& [known_name, kind] : kEventNames) {
    if (name != known_name) continue;
    event.kind = kind;
    known = true;
  }
  if (!known) return ApiError::bad_field("event", "The event must be snapshot, admitted or evicted.");
  StrictJson json;
  const auto root = json.parse(data, kResidencyEventBytesMax);
  if (!root.ok()) return ApiError::bad_field("", to_std(root.status().message()));
  dom::object fields;
  if (root->get(fields)) return ApiError::bad_field("", "The event's data must be a JSON object.");
  if (auto fault = read_event(fields, event)) return *std::move(fault);
  return event;
}

}  // namespace troupe
