#include "common/etcd/etcd_wire.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/base64.h"
#include "common/json/json.h"

namespace troupe::etcd {
namespace {

constexpr int kDepthMax = 16;

// --- writing ---

// Appends "name":"<base64>"
void append_bytes(std::string& out, std::string_view name, std::string_view bytes) {
  absl::StrAppend(&out, "\"", to_absl(name), "\":\"", base64(bytes), "\"");
}

void append_range(std::string& out, const KeyRange& range) {
  append_bytes(out, "key", range.begin);
  if (range.end.empty()) return;
  out += ',';
  append_bytes(out, "range_end", range.end);
  if (range.keys_only) out += ",\"keys_only\":true";
}

void append_put(std::string& out, const Put& put) {
  append_bytes(out, "key", put.key);
  out += ',';
  append_bytes(out, "value", put.value);
  if (put.lease != 0) absl::StrAppend(&out, ",\"lease\":\"", put.lease, "\"");
}

void append_compare(std::string& out, const Txn::Compare& compare) {
  const bool created = compare.of == Txn::Compare::Of::kCreateRevision;
  out += '{';
  append_bytes(out, "key", compare.key);
  absl::StrAppend(&out, ",\"result\":\"EQUAL\",\"target\":\"", created ? "CREATE" : "MOD", "\",\"",
                  created ? "create_revision" : "mod_revision", "\":\"", compare.revision, "\"}");
}

// Appends [item,item,…]
template <typename List, typename Append>
void append_list(std::string& out, const List& list, Append append) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (out.back() != '[') out += ',';
    append(out, list[i]);
  }
}

void append_reads(std::string& out, const std::vector<KeyRange>& reads) {
  append_list(out, reads, [](std::string& to, const KeyRange& range) {
    to += "{\"request_range\":{";
    append_range(to, range);
    to += "}}";
  });
}

// --- reading ---

// Reads the fields of an object. `status` keeps the first error.
class Fields {
 public:
  Fields(const bj::object& object, Status& status) : object_(object), status_(status) {}

  int64_t integer(std::string_view name) const {
    const bj::value* value = find(name);
    if (value == nullptr) return 0;
    if (value->is_int64()) return value->get_int64();
    int64_t number = 0;
    if (value->is_string()) {
      const std::string_view text(value->get_string());
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error == std::errc{} && end == text.data() + text.size()) return number;
    }
    refuse(name, "a 64-bit integer, or one in quotes");
    return 0;
  }
  // Reads a revision or a count.
  int64_t count(std::string_view name) const {
    const int64_t number = integer(name);
    if (number < 0) refuse(name, "0 or more");
    return number;
  }
  bool flag(std::string_view name) const {
    const bj::value* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_bool()) refuse(name, "true or false");
    return value->is_bool() && value->get_bool();
  }
  std::string_view text(std::string_view name) const {
    const bj::value* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) refuse(name, "a string");
    return value->is_string() ? std::string_view(value->get_string()) : std::string_view();
  }
  std::string bytes(std::string_view name) const {
    auto decoded = from_base64(text(name));
    if (!decoded) refuse(name, "base64");
    return std::move(decoded).value_or("");
  }
  // Calls `take` with the fields of the object, unless it is left out.
  template <typename Take>
  void object(std::string_view name, Take take) const {
    const bj::value* value = find(name);
    if (value == nullptr) return;
    if (!value->is_object()) return refuse(name, "an object");
    take(Fields(value->get_object(), status_));
  }
  // Calls `take` with the fields of every object in the list.
  template <typename Take>
  void list(std::string_view name, Take take) const {
    const bj::value* value = find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return refuse(name, "a list");
    for (const bj::value& item : value->get_array()) {
      if (!item.is_object()) return refuse(name, "a list of objects");
      take(Fields(item.get_object(), status_));
    }
  }

 private:
  const bj::value* find(std::string_view name) const { return object_.if_contains(name); }
  void refuse(std::string_view name, std::string_view wanted) const {
    if (!status_.ok()) return;
    status_ = absl::InternalError(absl::StrCat("etcd: ", to_absl(name), ": must be ", to_absl(wanted)));
  }

  const bj::object& object_;
  Status& status_;
};

// Parses the document and passes its root to `take`.
template <typename Answer, typename Take>
StatusOr<Answer> read_answer(std::string_view json, Take take) {
  JsonLimits limits;
  limits.bytes_max = kAnswerBytesMax;
  limits.depth_max = kDepthMax;
  const auto root = parse_json(json, limits);
  if (!root.ok()) return absl::InternalError(absl::StrCat("etcd: ", root.status().message()));
  if (!root->is_object()) return absl::InternalError("etcd: an answer is an object");
  Status status;
  Answer answer;
  take(Fields(root->get_object(), status), answer);
  if (!status.ok()) return status;
  return answer;
}

KeyValue key_value(const Fields& fields) {
  KeyValue kv;
  kv.key = fields.bytes("key");
  kv.value = fields.bytes("value");
  kv.create_revision = fields.count("create_revision");
  kv.mod_revision = fields.count("mod_revision");
  kv.lease = fields.count("lease");
  return kv;
}

int64_t revision_of(const Fields& answer) {
  int64_t revision = 0;
  answer.object("header", [&](const Fields& header) { revision = header.count("revision"); });
  return revision;
}

}  // namespace

KeyRange KeyRange::prefix(std::string name) {
  std::string end = name;
  end.back() = static_cast<char>(end.back() + 1);
  return {std::move(name), std::move(end), false};
}

std::string put_body(const Put& put) {
  std::string out = "{";
  append_put(out, put);
  return out + "}";
}

std::string txn_body(const Txn& txn) {
  std::string out = "{\"compare\":[";
  append_list(out, txn.compares, append_compare);
  out += "],\"success\":[";
  append_list(out, txn.puts, [](std::string& to, const Put& put) {
    to += "{\"request_put\":{";
    append_put(to, put);
    to += "}}";
  });
  append_list(out, txn.deletes, [](std::string& to, const std::string& key) {
    to += "{\"request_delete_range\":{";
    append_bytes(to, "key", key);
    to += "}}";
  });
  append_reads(out, txn.reads);
  out += "],\"failure\":[";
  append_reads(out, txn.else_reads);
  return out + "]}";
}

std::string grant_body(std::chrono::seconds ttl) {
  return absl::StrCat("{\"TTL\":\"", ttl.count(), "\"}");
}

std::string lease_body(int64_t id) {
  return absl::StrCat("{\"ID\":\"", id, "\"}");
}

std::string watch_body(std::span<const KeyRange> ranges, int64_t from_revision) {
  std::string out;
  for (const KeyRange& range : ranges) {
    out += "{\"create_request\":{";
    append_range(out, range);
    absl::StrAppend(&out, ",\"start_revision\":\"", from_revision, "\"}}");
  }
  return out;
}

StatusOr<TxnAnswer> parse_txn(std::string_view json) {
  return read_answer<TxnAnswer>(json, [](const Fields& fields, TxnAnswer& answer) {
    answer.revision = revision_of(fields);
    fields.object("header", [&answer](const Fields& header) { answer.cluster = header.text("cluster_id"); });
    answer.succeeded = fields.flag("succeeded");
    fields.list("responses", [&answer](const Fields& response) {
      response.object("response_range", [&answer](const Fields& range) {
        range.list("kvs", [&answer](const Fields& kv) { answer.found.push_back(key_value(kv)); });
      });
    });
  });
}

namespace {
void read_lease(const Fields& fields, Lease& lease) {
  lease.id = fields.integer("ID");
  lease.ttl = std::chrono::seconds(fields.count("TTL"));
}
}  // namespace

StatusOr<Lease> parse_grant(std::string_view json) {
  auto lease = read_answer<Lease>(json, read_lease);
  if (lease.ok() && (lease->id == 0 || lease->ttl.count() == 0))
    return absl::InternalError("etcd: a lease that is granted has an ID and a TTL");
  return lease;
}

StatusOr<Lease> parse_keep_alive(std::string_view json) {
  return read_answer<Lease>(json, [](const Fields& fields, Lease& lease) {
    fields.object("result", [&lease](const Fields& result) { read_lease(result, lease); });
  });
}

StatusOr<WatchMessage> parse_watch(std::string_view json) {
  bool has_result = false;
  auto message = read_answer<WatchMessage>(json, [&has_result](const Fields& fields, WatchMessage& out) {
    fields.object("result", [&](const Fields& result) {
      has_result = true;
      out.revision = revision_of(result);
      out.canceled = result.flag("canceled");
      result.list("events", [&out](const Fields& fields_of) {
        WatchEvent event;
        event.deleted = fields_of.text("type") == "DELETE";
        fields_of.object("kv", [&event](const Fields& kv) { event.kv = key_value(kv); });
        out.events.push_back(std::move(event));
      });
    });
  });
  if (!message.ok() || has_result) return message;
  return absl::UnavailableError(absl::StrCat("etcd: the watch ended: ", error_text(json)));
}

std::string error_text(std::string_view json) {
  JsonLimits limits;
  limits.bytes_max = 64u << 10;
  limits.depth_max = kDepthMax;
  const auto root = parse_json(json, limits);
  const bj::object* object = root.ok() ? root->if_object() : nullptr;
  for (const char* name : {"error", "message"}) {
    const bj::value* value = object == nullptr ? nullptr : object->if_contains(name);
    if (value == nullptr) continue;
    if (value->is_string()) return std::string(value->get_string());
    object = value->if_object();  // an error in a stream is an object with a message
  }
  return "";
}

Status Lines::feed(std::string_view piece) {
  buffer_.erase(0, read_);
  scanned_ -= read_;
  read_ = 0;
  buffer_ += piece;
  if (buffer_.size() <= line_bytes_max_ || buffer_.find('\n', scanned_) <= line_bytes_max_)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("etcd: a message of more than ", line_bytes_max_, " bytes"));
}

bool Lines::next(std::string_view& line) {
  while (true) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      return false;
    }
    line = std::string_view(buffer_).substr(read_, end - read_);
    read_ = scanned_ = end + 1;
    if (!line.empty()) return true;
  }
}

}  // namespace troupe::etcd
