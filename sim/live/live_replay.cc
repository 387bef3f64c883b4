// One io_context, one task a request. A request's tokens are known only when its answer ends (usage comes
// last), so the recorder receives its events then, with their original times, and its seconds are closed at
// the end.

#include "sim/live/live_replay.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/api/api.h"
#include "common/api/sse.h"
#include "common/json/json.h"
#include "common/net/file_limit.h"
#include "common/net/task_group.h"
#include "common/net/timer.h"
#include "sim/fleet/recorder.h"
#include "sim/live/client_conversations.h"

namespace troupe::sim {

namespace {

constexpr size_t kErrorBodyMax = 1 << 16, kReasonsMax = 16;

// Facts reported by one stream.
struct Stream {
  TimePoint first{}, last{};
  Duration longest_gap{};
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // optional in servers' usage
  bool has_usage = false, done = false;
  std::string text, error;
};

// A request that was sent, or was due.
struct Asked {
  uint64_t number = 0;
  int64_t attempts = 0;
  Status sent;       // else the reason for no answer
  std::string node;  // empty: unknown
  Stream stream;
  int status = 0;  // of an error that was the answer; 0: none
};

int64_t count_at(const bj::object& object, std::string_view key) {
  const bj::value* value = object.if_contains(key);
  return value != nullptr && value->is_int64() && value->get_int64() > 0 ? value->get_int64() : 0;
}

std::string_view text_of(const bj::object& chunk) {
  const bj::value* choices = chunk.if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return {};
  const bj::object* choice = choices->get_array().front().if_object();
  if (choice == nullptr) return {};
  const bj::value* delta = choice->if_contains("delta");
  const bj::value* text = delta != nullptr && delta->is_object() ? delta->get_object().if_contains("content")
                                                                 : choice->if_contains("text");
  if (text == nullptr || !text->is_string()) return {};
  return {text->get_string().data(), text->get_string().size()};
}

void read_event(std::string_view data, TimePoint now, Stream& stream) {
  if (data == "[DONE]") {
    stream.done = true;
    return;
  }
  const auto json = parse_json(data);
  if (!json.ok() || !json->is_object()) {
    stream.error = "a chunk that is no JSON object";
    return;
  }
  const bj::object& chunk = json->get_object();
  if (chunk.contains("error")) stream.error = "an error in the stream";
  if (const std::string_view text = text_of(chunk); !text.empty()) {
    stream.text += text;
    if (stream.first == TimePoint{}) stream.first = now;
    if (stream.last != TimePoint{}) stream.longest_gap = std::max(stream.longest_gap, now - stream.last);
    stream.last = now;
  }
  const bj::value* usage = chunk.if_contains("usage");
  if (usage == nullptr || !usage->is_object()) return;
  stream.has_usage = true;
  stream.prompt_tokens = count_at(usage->get_object(), "prompt_tokens");
  stream.completion_tokens = count_at(usage->get_object(), "completion_tokens");
  const bj::value* details = usage->get_object().if_contains("prompt_tokens_details");
  if (details != nullptr && details->is_object() && details->get_object().contains("cached_tokens"))
    stream.cached_tokens = count_at(details->get_object(), "cached_tokens");
}

class Driver {
 public:
  Driver(RequestSource& source, const LiveReplayOptions& options)
      : source_(source),
        options_(options),
        executor_(io_.get_executor()),
        group_(executor_),
        timer_(executor_),
        recorder_({.warmup = Duration(static_cast<int64_t>(options.warmup_s * 1e9)),
                   .slo_ttft_ms = options.slo_ttft_ms,
                   .slo_tpot_ms = options.slo_tpot_ms,
                   .pooled_kv_tokens = options.pooled_kv_tokens}) {
    for (const Endpoint& endpoint : options.endpoints)
      clients_.push_back(std::make_unique<HttpClient>(executor_, endpoint, client_options(options)));
    group_.on_error = [this](std::string_view what) { note_reason(std::string(what)); };
    if (options.fault_at_s >= 0) recorder_.fault(Duration(static_cast<int64_t>(options.fault_at_s * 1e9)));
  }

  StatusOr<Result> run() {
    const Status files = raise_file_limit(static_cast<size_t>(options_.connections) + 64);
    if (!files.ok()) return files;
    Status outcome = absl::UnknownError("did not run to its end");
    asio::co_spawn(executor_, pace(outcome), [&outcome](const std::exception_ptr& error) {
      if (error) outcome = absl::UnknownError("broke off with an exception");
    });
    io_.run();
    if (!outcome.ok()) return outcome;
    return result();
  }

 private:
  static HttpClientOptions client_options(const LiveReplayOptions& options) {
    HttpClientOptions out;
    out.idle_connections_max = static_cast<size_t>(options.connections);
    out.tls = options.tls;
    return out;
  }
  // Work of a node by the second in which the answer ended.
  struct Node {
    int32_t index = 0;
    std::map<int64_t, int64_t> work;
  };

  Task<void> pace(Status& outcome) {
    outcome = co_await find_model();
    if (!outcome.ok()) co_return;
    begin_ = clock_.now();
    outcome = co_await send_all();
    group_.close();
    co_await group_.join();
    for (const auto& client : clients_) client->close_idle();
  }

  // Asks the endpoints one after another, as some may be down.
  Task<Status> find_model() {
    if (!options_.model.empty()) co_return absl::OkStatus();
    Status outcome;
    for (const auto& client : clients_) {
      outcome = co_await find_model_at(*client);
      if (outcome.ok()) break;
    }
    co_return outcome;
  }

  Task<Status> find_model_at(HttpClient& client) {
    ClientRequest request;
    request.target = "/v1/models";
    const Deadline deadline = Deadline::after(clock_.now(), std::chrono::seconds(10));
    auto answer = co_await client.send(request, deadline);
    if (!answer.ok()) co_return annotate(answer.status(), "--url");
    auto body = co_await (*answer)->read_all(kErrorBodyMax);
    if (!body.ok()) co_return annotate(body.status(), "--url: /v1/models");
    auto models = parse_models(*body);
    if (!models.ok() || models->empty())
      co_return absl::FailedPreconditionError("--url: /v1/models lists no model; name one with --model");
    options_.model = models->front().id;
    co_return absl::OkStatus();
  }

  Task<Status> send_all() {
    TraceRequest request;
    for (uint64_t number = 1;; ++number) {
      const auto more = source_.next(request);
      if (!more.ok()) co_return more.status();
      if (!*more) co_return absl::OkStatus();
      recorder_.arrived(request);
      simulated_ += 1;
      timer_.expires_at(begin_ + request.at);
      co_await timer_.async_wait(use_task);
      if (in_flight_ >= options_.connections) {
        finish(request,
               {number, 0, absl::UnknownError("not sent: more than --connections in flight"), {}, {}, 0});
        continue;
      }
      in_flight_ += 1;
      group_.spawn(ask(request, number));
    }
  }

  std::string body_of(const TraceRequest& request, uint64_t number) {
    const std::vector<Message> messages = conversations_.messages(request, number);
    std::string body = "{\"model\":";
    append_json_string(body, options_.model);
    if (options_.chat) {
      body += ",\"messages\":";
      for (size_t i = 0; i < messages.size(); ++i) {
        absl::StrAppend(&body, i == 0 ? "[" : ",", "{\"role\":\"", to_absl(messages[i].role),
                        "\",\"content\":");
        append_json_string(body, messages[i].text);
        body += '}';
      }
      body += ']';
    } else {
      std::string prompt;
      for (const Message& message : messages) prompt += message.text;
      body += ",\"prompt\":";
      append_json_string(body, prompt);
    }
    absl::StrAppend(&body, ",\"max_tokens\":", std::max(request.output_tokens, 1),
                    ",\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    return body;
  }

  Task<void> ask(TraceRequest trace, uint64_t number) {
    const std::string body = body_of(trace, number);
    ClientRequest request;
    request.method = "POST";
    request.target = options_.chat ? "/v1/chat/completions" : "/v1/completions";
    request.body = body;
    request.headers.emplace_back("content-type", "application/json");
    if (trace.session != 0) request.headers.emplace_back("x-session-id", absl::StrCat("s", trace.session));
    const Duration timeout(static_cast<int64_t>(options_.timeout_s * 1e9));
    const Deadline deadline = Deadline::after(begin_ + trace.at, timeout);
    Asked asked;
    asked.number = number;
    while (asked.attempts <= options_.retries) {
      if (asked.attempts > 0) recorder_.retried(trace.at);
      asked.stream = {};
      asked.status = 0;
      bool answered = false;
      HttpClient& client = *clients_[(number + static_cast<uint64_t>(asked.attempts)) % clients_.size()];
      asked.attempts += 1;
      asked.sent = co_await exchange(client, request, deadline, asked, answered);
      if (answered || clock_.now() >= deadline.at) break;
    }
    in_flight_ -= 1;
    if (asked.sent.ok() && asked.stream.done)
      conversations_.answered(trace, number, std::move(asked.stream.text));
    finish(trace, asked);
  }

  // `answered`: the answer is complete, good or bad.
  Task<Status> exchange(HttpClient& client, const ClientRequest& request, Deadline deadline, Asked& asked,
                        bool& answered) {
    auto answer = co_await client.send(request, deadline);
    if (!answer.ok()) co_return answer.status();
    answered = (*answer)->status() != 200;
    if (answered) asked.status = (*answer)->status();
    if (answered) co_return absl::UnknownError(absl::StrCat("HTTP status ", asked.status));
    asked.node = node_of((*answer)->header("x-route-decision"));
    SseParser parser;
    std::string piece;
    while (true) {
      const auto more = co_await (*answer)->read(piece);
      if (!more.ok()) co_return more.status();
      if (!*more) break;
      const TimePoint now = clock_.now();
      const Status fed =
          parser.feed(piece, [&](const SseEvent& event) { read_event(event.data, now, asked.stream); });
      if (!fed.ok()) co_return fed;
    }
    answered = true;
    co_return absl::OkStatus();
  }

  static std::string node_of(std::string_view decision) {
    const size_t at = decision.find("node=");
    if (at == std::string_view::npos) return "server";
    return std::string(decision.substr(at + 5, decision.find(';', at) - at - 5));
  }

  void finish(const TraceRequest& trace, const Asked& asked) {
    const std::string why = why_lost(asked);
    if (why.empty()) {
      answered(trace, asked);
    } else {
      // A stream that broke off reported no counts, so its prompt counts as not found.
      recorder_.lost({trace.at, clock_.now() - begin_, trace.input_tokens, why});
      note_reason(why);
    }
    if (options_.on_request) report_request(trace, asked, why.empty());
  }

  // Empty: it was not lost.
  static std::string why_lost(const Asked& asked) {
    const Stream& stream = asked.stream;
    if (!asked.sent.ok()) return std::string(asked.sent.message());
    if (!stream.error.empty()) return stream.error;
    if (!stream.done || !stream.has_usage || stream.first == TimePoint{})
      return "a stream without text, usage or [DONE]";
    return {};
  }

  void answered(const TraceRequest& trace, const Asked& asked) {
    const Stream& stream = asked.stream;
    Node& node = nodes_.try_emplace(asked.node, Node{static_cast<int32_t>(nodes_.size()), {}}).first->second;
    const Duration first = stream.first - begin_, last = stream.last - begin_;
    recorder_.first_token({trace.at, first, node.index, static_cast<int32_t>(stream.prompt_tokens),
                           static_cast<int32_t>(stream.cached_tokens.value_or(0)), 0});
    recorder_.finished({trace.at, first, last, node.index, static_cast<int32_t>(stream.completion_tokens),
                        stream.longest_gap});
    node.work[last / std::chrono::seconds(1)] +=
        stream.prompt_tokens - stream.cached_tokens.value_or(0) + stream.completion_tokens;
  }

  void report_request(const TraceRequest& trace, const Asked& asked, bool whole) {
    const Stream& stream = asked.stream;
    RequestLine line;
    line.number = static_cast<int64_t>(asked.number);
    line.arrived = trace.at;
    if (stream.first != TimePoint{}) line.first = stream.first - begin_;
    line.ended = (whole ? stream.last : clock_.now()) - begin_;
    line.turn = trace.turn;
    line.prompt_tokens = stream.has_usage ? stream.prompt_tokens : trace.input_tokens;
    line.cached_tokens = stream.cached_tokens.value_or(-1);
    // An answer that broke off has no count.
    line.tokens = stream.has_usage || stream.first == TimePoint{} ? stream.completion_tokens : -1;
    line.attempts = asked.attempts;
    line.live_node = asked.node;
    if (!whole) line.end = RequestEnd::kLost;
    line.live_status = asked.status;
    options_.on_request(line);
  }

  void note_reason(std::string reason) {
    if (reasons_.size() >= kReasonsMax && !reasons_.contains(reason)) reason = "other reasons";
    reasons_[reason] += 1;
  }

  Result result() {
    const auto seconds = (clock_.now() - begin_) / std::chrono::seconds(1) + 1;
    std::vector<Recorder::NodeStand> stands(nodes_.size());
    for (int64_t second = 0; second < seconds; ++second) {
      for (const auto& [name, node] : nodes_) {
        const auto work = node.work.find(second);
        if (work != node.work.end()) stands[static_cast<size_t>(node.index)].work_tokens += work->second;
      }
      recorder_.second_over(static_cast<int32_t>(second), stands);
    }
    Result out;
    out.policy = "live";
    out.profile = options_.endpoints.front().authority();
    out.nodes = static_cast<int32_t>(nodes_.size());
    out.gateways = static_cast<int32_t>(clients_.size());
    recorder_.fill(out);
    for (const auto& [name, node] : nodes_) out.node_series[static_cast<size_t>(node.index)].id = name;
    out.simulated_requests = simulated_;
    out.wall_s = static_cast<double>((clock_.now() - begin_).count()) / 1e9;
    if (const int64_t count = conversations_.made_up_count(); count > 0) {
      std::fprintf(stderr,
                   "troupe-sim drive: %lld turns came before the last answer was whole; they quote another\n",
                   static_cast<long long>(count));
    }
    for (const auto& [reason, count] : reasons_)
      std::fprintf(stderr, "troupe-sim drive: %lld lost: %s\n", static_cast<long long>(count),
                   reason.c_str());
    return out;
  }

  RequestSource& source_;
  LiveReplayOptions options_;
  SteadyClock clock_;
  asio::io_context io_{1};
  Executor executor_;
  std::vector<std::unique_ptr<HttpClient>> clients_;
  TaskGroup group_;
  Timer timer_;
  Recorder recorder_;
  Conversations conversations_;
  TimePoint begin_{};
  int64_t in_flight_ = 0, simulated_ = 0;
  std::map<std::string, Node> nodes_;
  std::map<std::string, int64_t> reasons_;
};

}  // namespace

StatusOr<Result> drive(RequestSource& source, const LiveReplayOptions& options) {
  Driver driver(source, options);
  return driver.run();
}

}  // namespace troupe::sim
