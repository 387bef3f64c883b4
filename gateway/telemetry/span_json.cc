#include "gateway/telemetry/span_json.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/api/passed_paths.h"
#include "common/dialects/routes.h"
#include "common/json/json.h"
#include "gateway/telemetry/instruments.h"

namespace troupe {

namespace {

constexpr size_t kTextBytesMax = 512;  // bound of a text from the client
enum Kind { kInternal = 1, kServer = 2, kClient = 3 };
constexpr int kStatusError = 2;
// Bits of Span.flags beside those of the traceparent: the parent is another process's, and whether that is
// known.
constexpr uint32_t kHasIsRemote = 0x100, kIsRemote = 0x200;

// Cuts a text to whole characters of valid UTF-8, whatever comes in.
std::string fit(std::string_view text) {
  std::string out(text.substr(0, kTextBytesMax));
  if (is_valid_utf8(out)) return out;
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return out;
}

class Attributes {
 public:
  explicit Attributes(std::string& out) : out_(out) { out_ += "\"attributes\":["; }
  Attributes& text(std::string_view key, std::string_view value) {
    if (value.empty()) return *this;
    begin(key, "stringValue");
    append_json_string(out_, fit(value));
    out_ += "}}";
    return *this;
  }
  Attributes& count(std::string_view key, int64_t value) {
    begin(key, "intValue");
    absl::StrAppend(&out_, "\"", value, "\"}}");
    return *this;
  }
  Attributes& truth(std::string_view key) {
    begin(key, "boolValue");
    out_ += "true}}";
    return *this;
  }
  void end() { out_ += ']'; }

 private:
  void begin(std::string_view key, std::string_view type) {
    absl::StrAppend(&out_, first_ ? "" : ",", "{\"key\":\"", to_absl(key), "\",\"value\":{\"", to_absl(type),
                    "\":");
    first_ = false;
  }
  std::string& out_;
  bool first_ = true;
};

std::string_view operation_of(std::string_view path) {
  if (path == "/v1/chat/completions") return "chat";
  return path == "/v1/completions" ? "text_completion" : "";
}

// The path if it is one of a known few, as http.route has to be.
std::string_view route_of(std::string_view path) {
  if (path.starts_with("/v1/prefixes/")) return "/v1/prefixes/{id}";
  if (path.starts_with("/v1/personas/")) return "/v1/personas/{name}";
  if (path.starts_with("/v1/models/")) return "/v1/models/{id}";
  constexpr std::array<std::string_view, 8> kPaths{"/v1/chat/completions", "/v1/completions", "/v1/models",
                                                   "/v1/personas",         "/v1/prefixes",    "/tokenize",
                                                   "/detokenize",          "/health"};
  if (is_passed_path(path) || !dialect_methods(path).empty()) return path;
  return std::find(kPaths.begin(), kPaths.end(), path) == kPaths.end() ? std::string_view() : path;
}

std::string_view method_of(std::string_view method) {
  constexpr std::array<std::string_view, 9> kKnown{"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                                   "CONNECT", "OPTIONS", "TRACE", "PATCH"};
  return std::find(kKnown.begin(), kKnown.end(), method) == kKnown.end() ? "_OTHER" : method;
}

struct Address {
  std::string_view host;
  int64_t port = 0;  // 0: absent
};
Address address_of(std::string_view text) {
  Address address;
  const size_t colon = text.rfind(':');
  const bool bare = colon == std::string_view::npos || text.ends_with(']');
  address.host = text.substr(0, bare ? text.size() : colon);
  if (!bare) std::from_chars(text.data() + colon + 1, text.data() + text.size(), address.port);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  return address;
}

void add_address(Attributes& attributes, std::string_view role, std::string_view text) {
  const Address address = address_of(text);
  attributes.text(absl::StrCat(to_absl(role), ".address"), address.host);
  if (address.port > 0) attributes.count(absl::StrCat(to_absl(role), ".port"), address.port);
}

class Spans {
 public:
  Spans(const RequestRecord& request_record, const RequestFacts& facts)
      : request_record_(request_record), facts_(facts), trace_id_(request_record.trace->trace_id()) {
    out_.json.reserve(4096);
  }

  SpanText take() {
    server();
    if (request_record_.parsed != TimePoint{})
      part("parse", request_record_.started, request_record_.parsed, request_record_.spans.parse);
    if (request_record_.chosen != TimePoint{})
      part("choose", request_record_.parsed, request_record_.chosen, request_record_.spans.choose);
    if (request_record_.queued != TimePoint{})
      part("queue", request_record_.queued, request_record_.left_queue(facts_.ended),
           request_record_.spans.queue);
    for (size_t i = 0; i < request_record_.tries.size(); ++i) tried(i);
    return std::move(out_);
  }

 private:
  struct Head {
    std::string_view name;
    Kind kind = kInternal;
    uint64_t span = 0;
    TimePoint begin, end;
  };

  std::string time(TimePoint at) const {
    return absl::StrCat(request_record_.unix_ns + (at - request_record_.started).count());
  }

  void begin(const Head& head, uint64_t parent, uint32_t flags) {
    std::string& out = out_.json;
    absl::StrAppend(&out, out_.count > 0 ? "," : "", "{\"traceId\":\"", trace_id_, "\",\"spanId\":\"",
                    span_id(head.span), "\",");
    if (parent != 0) absl::StrAppend(&out, "\"parentSpanId\":\"", span_id(parent), "\",");
    absl::StrAppend(&out, "\"flags\":", flags | request_record_.trace->flags, ",\"name\":");
    append_json_string(out, fit(head.name));
    absl::StrAppend(&out, ",\"kind\":", static_cast<int>(head.kind), ",\"startTimeUnixNano\":\"",
                    time(head.begin), "\",\"endTimeUnixNano\":\"", time(head.end), "\",");
    out_.count += 1;
  }

  void first_byte(TimePoint at) {
    if (at != TimePoint{})
      absl::StrAppend(&out_.json, ",\"events\":[{\"timeUnixNano\":\"", time(at),
                      "\",\"name\":\"first_byte\"}]");
  }

  void end(bool error) {
    if (error) absl::StrAppend(&out_.json, ",\"status\":{\"code\":", kStatusError, "}");
    out_.json += '}';
  }

  void part(std::string_view name, TimePoint from, TimePoint to, uint64_t span) {
    begin({name, kInternal, span, from, to}, request_record_.trace->span, kHasIsRemote);
    Attributes(out_.json).end();
    end(false);
  }

  void usage(Attributes& attributes) const {
    if (!request_record_.counts) return;
    attributes.count("gen_ai.usage.input_tokens", request_record_.counts->prompt_tokens);
    attributes.count("gen_ai.usage.output_tokens", request_record_.counts->completion_tokens);
    if (request_record_.counts->has_cached)
      attributes.count("gen_ai.usage.cache_read.input_tokens", request_record_.counts->cached_tokens);
  }

  void asked(Attributes& attributes) const {
    attributes.text("gen_ai.operation.name", operation_of(facts_.path));
    attributes.text("gen_ai.request.model", facts_.model);
  }

  void http(Attributes& attributes) const {
    const std::string_view method = method_of(facts_.method);
    attributes.text("http.request.method", method);
    if (method == "_OTHER") attributes.text("http.request.method_original", facts_.method);
    attributes.text("url.path", facts_.path).text("url.scheme", "http");
    attributes.text("http.route", route_of(facts_.path));
    attributes.text("user_agent.original", facts_.user_agent);
    attributes.count("http.request.body.size", static_cast<int64_t>(facts_.bytes_in));
    add_address(attributes, "server", facts_.host);
    add_address(attributes, "client", request_record_.client);
  }

  void ours(Attributes& attributes) const {
    const AttemptRecord* last = request_record_.tries.empty() ? nullptr : &request_record_.tries.back();
    attributes.text("troupe.request_id", facts_.request_id).text("troupe.key", facts_.key);
    attributes.text("troupe.end", outcome_name(request_record_.end)).text("troupe.why", request_record_.why);
    if (!facts_.set.is_zero()) attributes.text("troupe.set", facts_.set.hex());
    if (last != nullptr) {
      attributes.text("troupe.node", last->node).text("troupe.branch", route::branch_name(last->branch));
      attributes.count("troupe.cached_tokens.expected", last->expect_cached);
    }
    if (request_record_.counts && request_record_.counts->has_cached)
      attributes.count("troupe.cached_tokens.actual", request_record_.counts->cached_tokens);
    attributes.count("troupe.attempts", static_cast<int64_t>(request_record_.tries.size()));
    attributes.count("troupe.resumes", static_cast<int64_t>(request_record_.resumes));
  }

  void server() {
    const bool answered = request_record_.end != RequestOutcome::kCancelled;
    const bool error = request_record_.status >= 500 || request_record_.end == RequestOutcome::kBroken;
    const std::string_view route = route_of(facts_.path);
    const std::string name =
        absl::StrCat(to_absl(method_of(facts_.method)), route.empty() ? "" : " ", to_absl(route));
    const bool remote = request_record_.parent_span != 0;
    begin({name, kServer, request_record_.trace->span, request_record_.started, facts_.ended},
          request_record_.parent_span, remote ? kHasIsRemote | kIsRemote : kHasIsRemote);
    Attributes attributes(out_.json);
    http(attributes);
    if (answered) attributes.count("http.response.status_code", request_record_.status);
    if (error || !answered)
      attributes.text("error.type", request_record_.why.empty() ? absl::StrCat(request_record_.status)
                                                                : request_record_.why);
    asked(attributes);
    usage(attributes);
    ours(attributes);
    attributes.end();
    first_byte(request_record_.first_byte);
    end(error);
  }

  void tried(size_t index) {
    const AttemptRecord& tried = request_record_.tries[index];
    const bool last = index + 1 == request_record_.tries.size();
    const bool cancelled = tried.ended == TimePoint{};
    const bool error = tried.failed || tried.status >= 400;
    const std::string_view operation = operation_of(facts_.path);
    const std::string name = operation.empty() ? absl::StrCat("POST ", to_absl(route_of(facts_.path)))
                                               : absl::StrCat(to_absl(operation), " ", to_absl(facts_.model));
    begin({name, kClient, tried.span, tried.sent, cancelled ? facts_.ended : tried.ended},
          request_record_.trace->span, kHasIsRemote);
    Attributes attributes(out_.json);
    attributes.text("http.request.method", "POST");
    attributes.text("url.full", absl::StrCat("http://", tried.node, to_absl(facts_.path)));
    add_address(attributes, "server", tried.node);
    if (index > 0) attributes.count("http.request.resend_count", static_cast<int64_t>(index));
    if (tried.status > 0) attributes.count("http.response.status_code", tried.status);
    if (cancelled) {
      attributes.text("error.type",
                      request_record_.why.empty() ? "cancelled" : std::string_view(request_record_.why));
    } else if (tried.failed && tried.failure != route::FailureKind::kStatus) {
      attributes.text("error.type", failure_name(tried.failure));
    } else if (error) {
      attributes.text("error.type", absl::StrCat(tried.status));
    }
    asked(attributes);
    if (!operation.empty()) attributes.text("gen_ai.provider.name", "troupe");
    if (last) usage(attributes);
    attributes.text("troupe.node", tried.node).text("troupe.branch", route::branch_name(tried.branch));
    attributes.count("troupe.attempt", static_cast<int64_t>(index) + 1);
    attributes.count("troupe.cached_tokens.expected", tried.expect_cached);
    if (tried.resumes) attributes.truth("troupe.resume");
    attributes.end();
    first_byte(tried.first_byte);
    end(error);
  }

  const RequestRecord& request_record_;
  const RequestFacts& facts_;
  const std::string trace_id_;
  SpanText out_;
};

}  // namespace

SpanText spans_of(const RequestRecord& request_record, const RequestFacts& facts) {
  return Spans(request_record, facts).take();
}

std::string batch_begin(std::string_view service_name, std::string_view instance_id) {
  std::string out = "{\"resourceSpans\":[{\"resource\":{";
  Attributes(out)
      .text("service.name", service_name)
      .text("service.instance.id", instance_id)
      .text("telemetry.sdk.name", "troupe")
      .text("telemetry.sdk.language", "cpp")
      .end();
  out += "},\"scopeSpans\":[{\"scope\":{\"name\":\"troupe.gateway\"},\"spans\":[";
  return out;
}

}  // namespace troupe
