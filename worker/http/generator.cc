#include "worker/http/generator.h"

#include <boost/asio/as_tuple.hpp>
#include <charconv>
#include <ctime>
#include <optional>
#include <utility>

#include "common/net/request_headers.h"
#include "worker/engine/engine_errors.h"
#include "worker/http/conversations.h"
#include "worker/http/embeddings.h"

namespace troupe {

namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

// Frees every choice in the engine when the request's coroutine ends, however it ends.
class Submission {
 public:
  Submission(Engine& engine, std::vector<RequestId> ids) : engine_(engine), ids_(std::move(ids)) {}
  ~Submission() {
    for (const RequestId id : ids_) engine_.cancel(id);
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

 private:
  Engine& engine_;
  const std::vector<RequestId> ids_;
};

// Appends a prompt's choices, which differ in their seed. The prompt is scored for the first choice only; the
// others find it cached.
void add_choices(EngineRequest request, int32_t count, std::vector<EngineRequest>& group) {
  const uint64_t seed = request.sampling.seed;
  for (int32_t i = 0; i < count; ++i) {
    EngineRequest& choice = group.emplace_back(request);
    choice.sampling.seed = choice_seed(seed, static_cast<uint32_t>(i));
    if (i > 0) choice.prompt_logprobs = false;
  }
}

std::vector<EngineRequest> group_of(PreparedRequest& prepared) {
  std::vector<EngineRequest> group;
  group.reserve((1 + prepared.more.size()) * static_cast<size_t>(prepared.choice_count));
  add_choices(std::move(prepared.engine), prepared.choice_count, group);
  for (PreparedPrompt& more : prepared.more)
    add_choices(std::move(more.engine), prepared.choice_count, group);
  return group;
}

// Every choice has its own automata of the stop strings and of the banned ones.
constexpr int64_t kStopBytesOfChoicesMax = int64_t{1} << 20;

int64_t bytes_of(const std::vector<std::string>& strings) {
  int64_t bytes = 0;
  for (const std::string& string : strings) bytes += static_cast<int64_t>(string.size());
  return bytes;
}

// Refuses a request of more choices than a worker can hold.
std::optional<ApiError> check_room(const PreparedRequest& prepared, int64_t requests_max) {
  const auto prompts = static_cast<int64_t>(1 + prepared.more.size());
  const std::string count = prepared.best_count > 0 ? "best_of" : "n";
  const std::pair<const char*, int64_t> fields[] = {
      {"stop", bytes_of(prepared.engine.stop_strings)},
      {"banned_strings", bytes_of(prepared.engine.banned_strings)}};
  for (const auto& [field, bytes] : fields) {
    if (prompts * prepared.choice_count * bytes <= kStopBytesOfChoicesMax) continue;
    return ApiError::bad_field(field, "the bytes of '" + std::string(field) + "' × prompts × '" + count +
                                          "' must come to at most " + std::to_string(kStopBytesOfChoicesMax));
  }
  // (With guidance each takes two places.)
  const bool is_guided = prepared.engine.guidance && !prepared.engine.prompt_only;
  const int64_t choices_max = is_guided ? requests_max / 2 : requests_max;
  if (prompts * prepared.choice_count <= choices_max) return std::nullopt;
  const std::string most =
      std::to_string(choices_max) + ", all that this worker can hold" + (is_guided ? " with guidance" : "");
  if (prompts == 1) return ApiError::bad_field(count, "'" + count + "' must be at most " + most);
  return ApiError::bad_field("prompt", "the prompts × '" + count + "' must come to at most " + most);
}

// The final piece of a resumed answer that had already ended.
EngineOutput end_of(const PreparedRequest& prepared) {
  EngineOutput piece;
  piece.finish = prepared.ended;
  piece.stop = prepared.stopped_by;
  piece.usage.prompt_tokens = static_cast<int64_t>(prepared.engine.prompt.size());
  piece.usage.completion_tokens = static_cast<int64_t>(prepared.engine.emitted.size());
  return piece;
}

// A hint never changes the answer, so a malformed one is ignored.
Hash128 hash_hint(const HttpRequest& request, std::string_view name) {
  return Hash128::from_hex(request.header(name)).value_or(Hash128{});
}

int64_t count_hint(const HttpRequest& request, std::string_view name) {
  const auto text = request.header(name);
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count > 0 ? count : 0;
}

RoutingHints hints_of(const HttpRequest& request) {
  RoutingHints hints;
  hints.set = hash_hint(request, "x-troupe-set");
  hints.session = hash_hint(request, "x-troupe-session");
  hints.planned = request.header("x-troupe-planned") == "1";
  hints.prefix_messages = count_hint(request, "x-troupe-prefix-messages");
  hints.prefix_bytes = count_hint(request, "x-troupe-prefix-bytes");
  return hints;
}

std::string random_hex(std::mt19937_64& random) {
  const uint64_t hi = random();
  const uint64_t lo = random();
  return Hash128{hi, lo}.hex();
}

}  // namespace

class Generator::RunningScope {
 public:
  explicit RunningScope(Generator& generator) : generator_(generator) {
    ++generator_.running_count_;
    generator_.asked_at_ = now();
  }
  ~RunningScope() {
    if (--generator_.running_count_ == 0) generator_.idle_timer_.cancel();
  }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  Generator& generator_;
};

Generator::Generator(Executor executor, Options options, const ServedModel& model, Engine& engine)
    : executor_(executor),
      options_(options),
      model_(model),
      engine_(engine),
      text_jobs_(options.text_timeout, options.long_text_bytes),
      next_turns_(engine),
      random_(std::random_device{}()),
      idle_timer_(executor) {}

Generator::~Generator() = default;

ApiResult<Deadline> Generator::admit(const HttpRequest& request) const {
  if (refusing_) return ApiError::unavailable("the worker is shutting down");
  if (running_count_ >= options_.requests_max) {
    return ApiError::overloaded("the worker has all the requests it may hold", /*retry_after_s=*/1);
  }
  return request_deadline(request, now(), options_.request_timeout);
}

Task<void> Generator::handle(HttpCall& call, GenerateRequest::Kind kind) {
  const auto deadline = admit(call.request());
  if (!deadline.ok()) {
    co_await call.fail(deadline.error());
    co_return;
  }
  const RunningScope running(*this);
  auto prepared = co_await prepare(call.request(), kind, deadline.value());
  if (!prepared.ok()) {
    co_await call.fail(prepared.error());
    co_return;
  }
  std::vector<TokenId> next = std::move(prepared->next_beginning);
  const Hash128 salt = prepared->engine.spec.salt;
  co_await generate(call, std::move(prepared.value()), deadline.value());
  if (call.code() == 200) next_turns_.compute(std::move(next), salt);
}

Task<void> Generator::handle_text(HttpCall& call, TextAnswer answer) {
  const auto deadline = admit(call.request());
  if (!deadline.ok()) {
    co_await call.fail(deadline.error());
    co_return;
  }
  const RunningScope running(*this);
  auto answered = co_await answer_text(call.request(), answer, deadline.value());
  if (!answered.ok()) {
    co_await call.fail(answered.error());
    co_return;
  }
  if (refusing_) call.exchange().close_after();
  co_await call.answer_json(200, std::move(answered.value()));
}

Task<ApiResult<std::string>> Generator::answer_text(const HttpRequest& request, TextAnswer answer,
                                                    Deadline deadline) {
  auto job = [this, &request, answer] { return answer(model_, request.body); };
  return text_jobs_.run<std::string>(request.body.size(), deadline, std::move(job));
}

Task<ApiResult<PreparedRequest>> Generator::prepare(const HttpRequest& request, GenerateRequest::Kind kind,
                                                    Deadline deadline) {
  const uint64_t random_seed = random_();
  auto job = [this, &request, kind, random_seed] {
    return prepare_request(model_, kind, request.body, random_seed, hints_of(request));
  };
  return text_jobs_.run<PreparedRequest>(request.body.size(), deadline, std::move(job));
}

Answer Generator::make_answer(PreparedRequest& prepared, bool includes_token_ids) {
  const bool is_chat = prepared.kind == GenerateRequest::Kind::kChat;
  Answer::Options options;
  options.header.kind = prepared.kind;
  options.header.id = std::move(prepared.id);
  if (options.header.id.empty()) options.header.id = (is_chat ? "chatcmpl-" : "cmpl-") + random_hex(random_);
  options.header.model = model_.name;
  options.header.created_s = prepared.created_s.value_or(std::time(nullptr));
  options.prompt_count = static_cast<int32_t>(1 + prepared.more.size());
  options.choice_count = prepared.choice_count;
  options.best_count = prepared.best_count;
  options.usage = prepared.usage;
  options.wants_logprobs = prepared.wants_logprobs;
  if (prepared.echo) {
    options.echoes.push_back(*std::move(prepared.echo));
    for (PreparedPrompt& more : prepared.more) options.echoes.push_back(*std::move(more.echo));
  }
  options.includes_token_ids = includes_token_ids;
  options.seed = prepared.engine.sampling.seed;
  options.begun = prepared.begun;
  options.syntax = std::move(prepared.syntax);
  options.places = std::move(prepared.places);
  return Answer(std::move(options));
}

Task<void> Generator::generate(HttpCall& call, PreparedRequest prepared, Deadline deadline) {
  if (const auto error = check_room(prepared, options_.requests_max)) {
    co_await call.fail(*error);
    co_return;
  }
  const bool includes_token_ids = prepared.stream && call.request().header("x-troupe-ids") == "1";
  Answer answer = make_answer(prepared, includes_token_ids);
  const Source source{std::make_shared<OutputChannel>(executor_), deadline};
  if (prepared.ended != FinishReason::kNone) {
    source.channel->put(end_of(prepared));
    co_await answer_stream(call, answer, source);
    co_return;
  }
  auto sink = [channel = source.channel](EngineOutput piece) { channel->put(std::move(piece)); };
  auto ids = engine_.submit(group_of(prepared), std::move(sink));
  if (!ids.ok()) {
    const ApiError error = submit_error(ids.status());
    co_await call.fail(error);
    co_return;
  }
  const Submission submission(engine_, *std::move(ids));
  if (prepared.stream) {
    co_await answer_stream(call, answer, source);
  } else {
    co_await answer_whole(call, answer, source);
  }
}

Task<ApiResult<Usage>> Generator::compute(EngineRequest request, Deadline deadline) {
  const auto channel = std::make_shared<OutputChannel>(executor_);
  auto sink = [channel](EngineOutput piece) { channel->put(std::move(piece)); };
  const auto id = engine_.submit(std::move(request), std::move(sink));
  if (!id.ok()) co_return submit_error(id.status());
  const Submission submission(engine_, std::vector<RequestId>(1, *id));
  while (true) {
    const bool ready = co_await channel->wait(deadline);
    if (!ready) co_return deadline_error();
    for (const auto& piece : channel->take()) {
      if (!piece.error.ok()) co_return step_error(piece.error);
      if (piece.finish != FinishReason::kNone) co_return piece.usage;
    }
  }
}

Task<void> Generator::handle_prefix(HttpCall& call, Prefixes& prefixes) {
  const auto deadline = admit(call.request());
  if (!deadline.ok()) {
    co_await call.fail(deadline.error());
    co_return;
  }
  const RunningScope running(*this);
  auto job = [this, &call] { return prepare_prefix(model_, call.request().body, hints_of(call.request())); };
  const size_t bytes = call.request().body.size();
  auto prepared = co_await text_jobs_.run<PreparedPrefix>(bytes, deadline.value(), std::move(job));
  if (!prepared.ok()) {
    co_await call.fail(prepared.error());
    co_return;
  }
  auto making = prefixes.begin(prepared->ask, call.request().header(kOwnerHeader));
  if (!making.ok()) {
    co_await call.fail(making.error());
    co_return;
  }
  auto usage = co_await compute(std::move(prepared->engine), deadline.value());
  if (!usage.ok()) {
    co_await call.fail(usage.error());
    co_return;
  }
  std::string body = making.value()->finish(usage->cached_tokens);
  if (refusing_) call.exchange().close_after();
  co_await call.answer_json(200, std::move(body));
}

Task<void> Generator::handle_conversation(HttpCall& call) {
  const auto deadline = admit(call.request());
  if (!deadline.ok()) {
    co_await call.fail(deadline.error());
    co_return;
  }
  const RunningScope running(*this);
  auto job = [this, &call] { return prepare_tail(model_, call.request().body); };
  const size_t bytes = call.request().body.size();
  auto prepared = co_await text_jobs_.run<EngineRequest>(bytes, deadline.value(), std::move(job));
  if (!prepared.ok()) {
    co_await call.fail(prepared.error());
    co_return;
  }
  const auto count = static_cast<int64_t>(prepared->prompt.size());
  auto usage = co_await compute(*std::move(prepared), deadline.value());
  if (!usage.ok()) {
    co_await call.fail(usage.error());
    co_return;
  }
  if (refusing_) call.exchange().close_after();
  co_await call.answer_json(200, conversation_made_json(count, usage->cached_tokens));
}

Task<void> Generator::handle_embeddings(HttpCall& call) {
  const auto deadline = admit(call.request());
  if (!deadline.ok()) {
    co_await call.fail(deadline.error());
    co_return;
  }
  const RunningScope running(*this);
  auto job = [this, &call] { return prepare_embeddings(model_, call.request().body); };
  const size_t bytes = call.request().body.size();
  auto prepared = co_await text_jobs_.run<PreparedEmbeddings>(bytes, deadline.value(), std::move(job));
  if (!prepared.ok()) {
    co_await call.fail(prepared.error());
    co_return;
  }
  const auto number_count = static_cast<int64_t>(prepared->inputs.size()) * model_.config.hidden_size;
  const auto place = embeddings_room_.take(number_count);
  if (!place.ok()) {
    co_await call.fail(place.error());
    co_return;
  }
  auto answer =
      co_await compute_embeddings(executor_, engine_, model_.name, *std::move(prepared), deadline.value());
  if (!answer.ok()) {
    co_await call.fail(answer.error());
    co_return;
  }
  auto write = [&answer]() -> ApiResult<std::string> { return embeddings_json(*answer); };
  const auto number_bytes = static_cast<size_t>(number_count) * sizeof(float);
  auto body = co_await text_jobs_.run<std::string>(number_bytes, deadline.value(), std::move(write));
  if (!body.ok()) {
    co_await call.fail(body.error());
    co_return;
  }
  if (refusing_) call.exchange().close_after();
  co_await call.answer_json(200, *std::move(body));
}

Task<void> Generator::wait_quiet(Deadline deadline) {
  constexpr Duration kQuiet = std::chrono::seconds(1), kLook = std::chrono::milliseconds(20);
  const auto token = asio::as_tuple(use_task);
  while (!skips_grace_period_ && !deadline.expired(now())) {
    if (running_count_ == 0 && now() >= asked_at_ + kQuiet) co_return;
    idle_timer_.expires_after(kLook);
    co_await idle_timer_.async_wait(token);
  }
}

Task<bool> Generator::wait_idle(Deadline deadline) {
  const auto token = asio::as_tuple(use_task);
  while (running_count_ > 0) {
    if (skips_grace_period_ || deadline.expired(now())) co_return false;
    idle_timer_.expires_at(deadline.at);
    co_await idle_timer_.async_wait(token);
  }
  co_return true;
}

void Generator::skip_grace_period() {
  skips_grace_period_ = true;
  idle_timer_.cancel();
}

}  // namespace troupe
