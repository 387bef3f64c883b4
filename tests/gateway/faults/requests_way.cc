// A request's way: the gateway's side as gateway/proxy and forward.cc have it, and what workers send.

#include <algorithm>

#include "gateway/upstream/forward.h"
#include "tests/gateway/faults/requests_world.h"

namespace troupe::route::faults {

using std::chrono::milliseconds;

namespace {

constexpr size_t kHeldMax = 1u << 20;

std::string token_text(size_t request, int at) {
  return "t" + std::to_string(hash_bytes(std::to_string(request) + "/" + std::to_string(at)).lo % 1000) + " ";
}

// Between two markers.
std::string_view cut_out(std::string_view text, std::string_view begin, std::string_view end) {
  const size_t at = text.find(begin);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + begin.size());
  return rest.substr(0, rest.find(end));
}

}  // namespace

// --- the gateway ---

void RequestsWorld::ask() {
  const auto request = std::make_shared<Flight>();
  requests_.push_back(request);
  request->number = static_cast<size_t>(out_.requests++);
  request->key.set = hash_bytes("set " + std::to_string(pick(6)));
  request->key.prefix_tokens = 200;
  request->key.prompt_tokens = 400;
  request->stream = chance(0.8);
  request->tokens = 1 + static_cast<int>(pick(25));
  const Duration given = chance(0.15) ? between(50, 1500) : std::chrono::seconds(8);
  request->deadline = now_ + given;
  request->flow.begin(request->key, "a", 1);
  if (request->flow.choose(context(), now_) == Action::kRefuse) {
    if (router_->view().routable_count() > 0) breach("nobody is asked though somebody could be");
    return end(request, "refused");
  }
  after(given, [this, request] {
    if (request->ended) return;
    const Failure failure{FailureKind::kDeadline, 0};
    fail(request, failure);
  });
  if (chance(0.05)) {
    after(between(1, 1500), [this, request] {
      if (!request->ended) end(request, "cancelled");
    });
  }
  request->flow.admitted(context(), false, now_);
  budget_left_ = std::min(retry_options_.budget_max, budget_left() + retry_options_.budget_ratio);
  budget_at_ = now_;
  send(request);
}

void RequestsWorld::send(const Shared& request) {
  const NodeIndex node = request->flow.attempt().candidate.node;
  if (std::find(request->tried.begin(), request->tried.end(), node) != request->tried.end())
    breach("request " + std::to_string(request->number) + " is sent to n" + std::to_string(node) + " twice");
  if (!request->tried.empty() && !router_->view().routable(node))
    breach("a retry is sent to n" + std::to_string(node) + ", which takes no requests");
  request->tried.push_back(node);
  if (static_cast<int>(request->tried.size()) > retry_options_.attempts_max)
    breach("a request is tried too often");
  request->tries += 1;
  Worker& worker = workers_[node];
  request->is_troupe_worker = worker.is_troupe_worker;
  request->asks_ids = request->stream && worker.is_troupe_worker;
  request->held.clear();
  request->resume_body.clear();
  if (request->asks_ids) {
    if (!request->tap) request->tap.emplace(true);
    request->tap->next_worker(request->head_sent);
    if (request->head_sent) request->resume_body = request->tap->resume_body("{\"model\":\"a\"}");
  }
  request->heard_at = now_;
  request->began_at = {};
  watch_silence(request, request->tries);
  after(between(0.1, 3), [this, request, number = request->tries] { arrives(request, number); });
}

void RequestsWorld::watch_silence(const Shared& request, uint64_t number) {
  const Duration most = silence_timeout(stall_, request->is_troupe_worker);
  after(request->heard_at + most - now_, [this, request, number, most] {
    if (request->ended || request->tries != number) return;
    if (now_ < request->heard_at + most) return watch_silence(request, number);
    RequestFlow::SilentFacts facts;
    facts.heartbeats_asked = request->asks_ids;
    facts.heartbeats_seen = request->asks_ids && request->tap->heartbeats();
    facts.bytes = request->client.size();
    if (request->flow.silent(context(), facts, progress(*request), now_))
      return fail(request, {FailureKind::kSilent, 0});
    request->heard_at = now_;  // and for as long again
    watch_silence(request, number);
  });
}

NodeStatus RequestsWorld::node_status(NodeIndex node) const {
  const Worker& worker = workers_[node];
  return {.is_troupe_worker = worker.is_troupe_worker,
          .heartbeats = worker.heartbeats,
          .suspect = worker.health.state() == NodeState::kSuspect,
          .dead = worker.health.state() == NodeState::kDead};
}

AnswerProgress RequestsWorld::progress(const Flight& request) const {
  AnswerProgress progress;
  progress.started = request.head_sent;
  progress.resumable = request.tap && request.tap->resumable();
  progress.tokens = request.tap ? static_cast<int64_t>(request.tap->ids_delivered()) : 0;
  progress.remaining = request.deadline - now_;
  return progress;
}

void RequestsWorld::fail(const Shared& request, const Failure& failure) {
  if (!heeds_tried_) {  // the mutant: the request begins anew, and so forgets which nodes it was sent to
    request->flow.abandoned(context(), now_);
    request->flow = RequestFlow();
    request->flow.begin(request->key, "a", 1);
    if (request->flow.choose(context(), now_) == Action::kRefuse) return failed_for_good(request, failure);
    request->flow.admitted(context(), false, now_);
    return send(request);
  }
  if (request->flow.failed(context(), failure, true, progress(*request), now_) != Action::kSend)
    return failed_for_good(request, failure);
  check_retry(*request, failure);
  const bool afresh = request->head_sent && request->began_at != TimePoint{} &&
                      now_ - request->began_at >= retry_options_.afresh_after;
  if (afresh) request->tried.erase(request->tried.begin(), request->tried.end() - 1);
  if (request->head_sent) resumed_ += 1;
  send(request);
}

void RequestsWorld::failed_for_good(const Shared& request, const Failure& failure) {
  check_given_up(*request, failure);
  out_.failed += 1;
  end(request, "failed");
}

void RequestsWorld::end(const Shared& request, const std::string& how) {
  if (request->ended) breach("request " + std::to_string(request->number) + " ends twice");
  if (now_ > request->deadline + milliseconds(1)) breach("a request ends after its deadline");
  say("request " + std::to_string(request->number) + " " + how + " after " +
      std::to_string(request->tried.size()) + " tries");
  request->ended = true;
  if (!request->tried.empty()) {
    const bool complete = how == "complete";
    if (complete) {
      request->flow.answered(context(), AnswerCounts{400, request->tokens, 0, true}, 200, now_);
    } else {
      request->flow.abandoned(context(), now_);
    }
    check_text(*request, complete);
  }
  out_.digest = chain_hash(out_.digest, how + request->client);
}

// As relay_stream() has it.
void RequestsWorld::heard(const Shared& request, std::string bytes) {
  request->heard_at = now_;
  Flight& r = *request;
  r.held += bytes;
  const size_t whole = r.held.size() > kHeldMax ? r.held.size() : whole_events(r.held);
  std::string piece = r.held.substr(0, whole);
  r.held.erase(0, whole);
  if (r.asks_ids) {
    r.tap->cut(piece);
    if (r.tap->heartbeats()) workers_[r.tried.back()].heartbeats = true;
    if (r.tap->diverged()) return fail(request, {FailureKind::kBody, 0});
  }
  const std::string_view error = error_event(piece);
  const int status = r.asks_ids && !error.empty() ? status_of_error_event(error) : 0;
  std::string_view events = piece;
  if (!error.empty())
    events =
        events.substr(0, static_cast<size_t>(error.data() - piece.data()) + (status == 0 ? error.size() : 0));
  if (!events.empty()) {
    if (r.began_at == TimePoint{}) {
      r.flow.first_byte(context(), r.asks_ids && r.tap->heartbeats(), now_);
      r.began_at = now_;
    }
    r.head_sent = true;
    r.client += events;
  }
  if (error.empty()) return;
  if (status == 0)
    return end(request, "told of an error");  // of another kind: the worker itself told the client
  fail(request, {FailureKind::kStatus, status});
}

void RequestsWorld::heard_end(const Shared& request) {
  request->heard_at = now_;
  if (request->asks_ids && request->tap->heartbeats() && !request->tap->done())
    return fail(request, {FailureKind::kBody, 0});
  complete_ += 1;
  end(request, "complete");
}

// --- the workers ---

// Bytes on their way when the gateway turned away are lost; so are those behind a partition, until that is
// over.
void RequestsWorld::put(const Shared& request, uint64_t number, const std::string& bytes) {
  if (!request->ended && request->tries == number && !bytes.empty()) heard(request, bytes);
}

void RequestsWorld::arrives(const Shared& request, uint64_t number) {
  if (request->ended || request->tries != number) return;
  Worker& worker = workers_[request->tried.back()];
  if (worker.cut) {  // a connection that is never made
    after(milliseconds(800), [this, request, number] {
      if (!request->ended && request->tries == number) fail(request, {FailureKind::kConnect, 0});
    });
    return;
  }
  if (!worker.alive) return fail(request, {FailureKind::kConnect, 0});
  if (worker.full) return fail(request, {FailureKind::kStatus, 429});
  if (worker.ill_status != 0) return fail(request, {FailureKind::kStatus, worker.ill_status});
  Answer answer;
  answer.life = worker.life;
  answer.id = "chatcmpl-" + std::to_string(request->number) + "-" + std::to_string(number);
  if (!request->resume_body.empty()) {
    // Up to where the client has it, by the ids that were told.
    const std::string_view told = cut_out(request->resume_body, "\"ids\":[", "]");
    answer.at = told.empty() ? 0 : 1 + static_cast<int>(std::count(told.begin(), told.end(), ','));
    std::string expected;
    for (int i = 0; i < answer.at; ++i) expected += (i == 0 ? "" : ",") + std::to_string(i);
    if (told != expected) breach("a worker is told to go on after other tokens than it has");
    if (cut_out(request->resume_body, "\"seed\":", ",") != std::to_string(request->number))
      breach("a worker is told to go on with another seed");
    answer.strays = faulty_ && chance(0.05);
    if (answer.strays) answer.at = 0;
    if (!answer.strays) answer.id = cut_out(request->resume_body, "\"id\":\"", "\"");
  }
  after(between(5, 300), [this, request, number, answer] { write(request, number, answer); });
}

std::string RequestsWorld::chunk(const Flight& request, const Answer& answer, int tokens) const {
  std::string text, ids;
  for (int i = answer.at; i < answer.at + tokens; ++i) {
    text += token_text(request.number, i);
    ids += (i == answer.at ? "" : ",") + std::to_string(i);
  }
  const bool last = answer.at + tokens >= request.tokens;
  std::string out = "data: {\"id\":\"" + answer.id + "\",\"object\":\"chat.completion.chunk\",\"created\":7,";
  out += "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + text +
         "\"},\"finish_reason\":" + (last ? "\"length\"" : "null") + "}]";
  if (request.asks_ids) {
    out += ",\"troupe\":{\"ids\":[" + ids + "]";
    out += ",\"seed\":" + std::to_string(request.number) + "}";
  }
  return out + "}\n\n";
}

// A step: some tokens, or the end. REQUIRES: the try is still of interest, else nothing comes of it.
void RequestsWorld::write(const Shared& request, uint64_t number, Answer answer) {
  if (request->ended || request->tries != number) return;
  Worker& worker = workers_[request->tried.back()];
  if (worker.cut || worker.hung) {  // nothing is heard; when that is over it goes on
    after(milliseconds(100), [this, request, number, answer] { write(request, number, answer); });
    return;
  }
  if (!worker.alive || worker.life != answer.life) {
    const bool begun = request->head_sent && request->heard_at > TimePoint{};
    return fail(request, {begun ? FailureKind::kBody : FailureKind::kTransport, 0});
  }
  if (faulty_ && chance(breaks_)) {
    if (!request->stream) return fail(request, {FailureKind::kStatus, 500});
    if (chance(0.4)) return fail(request, {FailureKind::kBody, 0});
    return put(request, number,
               "data: {\"error\":{\"message\":\"m\",\"type\":\"server_error\",\"code\":\"internal\"}}\n\n");
  }
  if (!request->stream) {  // computed for a while, then told at once
    after(between(5, 900), [this, request, number] {
      if (request->ended || request->tries != number) return;
      for (int i = 0; i < request->tokens; ++i) request->client += token_text(request->number, i);
      request->head_sent = true;
      heard_end(request);
    });
    return;
  }
  std::string bytes;
  if (request->asks_ids && chance(0.5)) bytes += ": hb\n\n";
  const int left = request->tokens - answer.at;
  if (left > 0) {
    const int tokens = std::min(left, 1 + static_cast<int>(pick(3)));
    bytes += chunk(*request, answer, tokens);
    answer.at += tokens;
  } else if (!request->resume_body.empty() && chance(0.5)) {
    bytes += chunk(*request, answer, 0);  // the client has all but perhaps its end: the finish once more
  }
  const bool over = answer.at >= request->tokens;
  if (over) bytes += "data: [DONE]\n\n";
  const size_t cut = chance(0.5) ? bytes.size() : pick(bytes.size() + 1);
  put(request, number, bytes.substr(0, cut));
  after(between(0, 20), [this, request, number, answer, over, rest = bytes.substr(cut)] {
    put(request, number, rest);
    if (request->ended || request->tries != number) return;
    if (over) return heard_end(request);
    after(between(1, 60), [this, request, number, answer] { write(request, number, answer); });
  });
}

}  // namespace troupe::route::faults
