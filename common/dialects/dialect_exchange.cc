#include "common/dialects/dialect_exchange.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

using Control = TranslatedRequest::Control;

// A body in one piece, before it is translated; more than a worker's longest answer.
constexpr size_t kHeldBytesMax = 64u << 20;

Task<void> nothing() {
  co_return;
}

// Names the client, too: another client's generations are none of its business.
std::string name_of(std::string_view client, std::string_view key) {
  return absl::StrCat(to_absl(client), "\n", to_absl(key));
}

std::string_view client_of(const HttpRequest& request) {
  for (const std::string_view name : {"authorization", "api-key", "x-api-key"})
    if (const std::string_view value = request.header(name); !value.empty()) return value;
  return {};
}

HttpRequest translated_head(const HttpRequest& asked, const TranslatedRequest& translated) {
  HttpRequest request;
  request.method = translated.path.empty() ? asked.method : translated.method;
  request.path = translated.path.empty() ? asked.path : translated.path;
  request.target = request.path;
  request.headers = asked.headers;
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "content-length" || header.first == "accept-encoding" ||
           header.first == "content-type";
  });
  if (request.method == "POST") {
    request.headers.emplace_back("content-type", "application/json");
    request.headers.emplace_back("content-length", std::to_string(translated.body.size()));
  }
  request.keep_alive = asked.keep_alive;
  return request;
}

// Headers of a whole answer in JSON.
HeaderList json_headers(const HeaderList& headers) {
  HeaderList list;
  for (const auto& header : headers) {
    const bool of_body = header.first == "content-type" || header.first == "content-length" ||
                         header.first == "cache-control" || header.first == "transfer-encoding";
    if (!of_body) list.push_back(header);
  }
  list.emplace_back("content-type", "application/json");
  return list;
}

bool has_events(const HeaderList& headers) {
  return absl::StartsWithIgnoreCase(to_absl(find_header(headers, "content-type")), "text/event-stream");
}

}  // namespace

std::string Generations::text_of(std::string_view client, std::string_view key) const {
  const auto last = running_.upper_bound(name_of(client, key));
  if (last == running_.begin()) return {};
  const auto& [name, exchange] = *std::prev(last);
  return name == name_of(client, key) ? exchange->translated_.answer->text_so_far() : std::string();
}

bool Generations::abort(std::string_view client, std::string_view key) {
  const auto [begin, end] = running_.equal_range(name_of(client, key));
  for (auto it = begin; it != end; ++it) it->second->aborted_ = true;
  return begin != end;
}

std::string Generations::perf_json(TimePoint now) const {
  const std::chrono::duration<double> up = now - began_;
  return to_json(bj::object{{"total_gens", total_},
                            {"queue", running_.size()},
                            {"idle", running_.empty() ? 1 : 0},
                            {"uptime", up.count()},
                            {"idletime", 0},
                            {"hordeexitcounter", -1}});
}

DialectExchange::DialectExchange(Exchange& inner, const DialectRoute& route, Generations& generations)
    : inner_(inner),
      generations_(generations),
      translated_(translate(inner.request(), route, fault_)),
      request_(translated_head(inner.request(), translated_)),
      translator_(*translated_.answer, translated_.renames, /*passes_comments=*/!translated_.collects) {
  request_.body = std::move(translated_.body);
  const bool generates =
      request_.path == "/v1/completions" && translated_.control == Control::kNone && !fault_;
  if (!generates) return;
  ++generations_.total_;
  if (!translated_.generation_key.empty())
    generations_.running_.emplace(name_of(client_of(request_), translated_.generation_key), this);
}

TranslatedRequest DialectExchange::translate(const HttpRequest& asked, const DialectRoute& route,
                                             std::optional<ApiError>& fault) {
  auto translated = route.translate(asked.path, asked.body);
  if (translated.ok()) return *std::move(translated);
  fault = translated.error();
  TranslatedRequest none;
  none.answer = route.refuse();
  const auto body = parse_json(asked.body);
  if (body.ok() && body->is_object()) none.model = text_member(body->get_object(), "model");
  return none;
}

DialectExchange::~DialectExchange() {
  std::erase_if(generations_.running_, [this](const auto& entry) { return entry.second == this; });
}

std::string DialectExchange::control_json() const {
  const std::string_view client = client_of(request_);
  if (translated_.control == Control::kPerf) return generations_.perf_json(std::chrono::steady_clock::now());
  if (translated_.control == Control::kAbort) {
    const bool found = generations_.abort(client, translated_.generation_key);
    return to_json(bj::object{{"success", found ? "true" : "false"}, {"done", "true"}});
  }
  bj::array results;
  results.push_back(bj::object{{"text", generations_.text_of(client, translated_.generation_key)}});
  return to_json(bj::object{{"results", std::move(results)}});
}

Task<void> DialectExchange::respond(int status, const HeaderList& headers, std::string body) {
  done_ = true;
  const bool controls = status < 300 && translated_.control != Control::kNone;
  std::string said = controls ? control_json() : translator_.whole(status, body);
  const HeaderList list = json_headers(headers);
  co_await inner_.respond(status, list, std::move(said));
}

Task<void> DialectExchange::start(int status, const HeaderList& headers) {
  streams_ = status == 200 && has_events(headers);
  if (streams_ && !translated_.collects) return inner_.start(status, headers);
  held_ = Held{};
  held_->status = status;
  held_->headers = headers;
  return nothing();
}

Task<void> DialectExchange::write(std::string_view bytes) {
  if (aborted_) throw boost::system::system_error(asio::error::operation_aborted);
  std::string out;
  if (streams_) translator_.feed(bytes, out);
  if (!held_) {
    // (Also where there is nothing to say yet: behind a write the head is out.)
    if (!out.empty() || !inner_.head_sent()) co_await inner_.write(out);
    co_return;
  }
  held_->body += streams_ ? std::string_view(out) : bytes;
  if (held_->body.size() <= kHeldBytesMax) co_return;
  inner_.cut();
  throw boost::system::system_error(asio::error::operation_aborted);
}

Task<void> DialectExchange::finish() {
  done_ = true;
  return held_ ? respond_held() : inner_.finish();
}

Task<void> DialectExchange::respond_held() {
  Held held = *std::exchange(held_, std::nullopt);
  if (!streams_) {
    held.body = translator_.whole(held.status, held.body);
  } else if (translator_.failed()) {
    held.status = translator_.failed()->status;
  }
  const HeaderList list = json_headers(held.headers);
  co_await inner_.respond(held.status, list, std::move(held.body));
}

Task<void> DialectExchange::end_aborted() {
  if (!streams_ || std::exchange(done_, true)) return nothing();
  std::string out;
  translated_.answer->end(out);
  if (!held_) return inner_.finish();
  held_->body = std::move(out);
  return respond_held();
}

bool DialectExchange::send_ahead(int status, const HeaderList& headers, std::string_view bytes) {
  if (translated_.collects) return false;
  streams_ = true;
  return inner_.send_ahead(status, headers, bytes);
}

}  // namespace troupe
