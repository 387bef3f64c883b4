#include "worker/http/conversations.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/dom.h"

namespace troupe {

namespace {

// Runs `question` on the engine's thread between two steps and resumes the caller on its own executor.
// Returns nullopt if the engine stops. Waits even when cancelled, because the engine calls every question.
template <typename Answer, typename Ask>
Task<std::optional<Answer>> ask(Engine& engine, Ask question) {
  auto initiate = [&engine](auto handler, Ask asked) {
    auto work = asio::make_work_guard(handler);
    auto shared =
        std::make_shared<std::pair<decltype(handler), decltype(work)>>(std::move(handler), std::move(work));
    const auto answer = [shared](std::optional<Answer> value) {
      asio::post(shared->second.get_executor(), [shared, value = std::move(value)]() mutable {
        auto [to, guard] = std::move(*shared);
        std::move(to)(std::move(value));
      });
    };
    const bool taken = engine.ask([answer, asked](const Scheduler* scheduler) {
      answer(scheduler == nullptr ? std::optional<Answer>() : std::optional<Answer>(asked(*scheduler)));
    });
    if (!taken) answer(std::nullopt);
  };
  return asio::async_initiate<const UseTask, void(std::optional<Answer>)>(std::move(initiate), use_task,
                                                                          std::move(question));
}

CachedConversation told(Conversation&& c, const std::string& model) {
  CachedConversation tail;
  tail.model = model;
  tail.session = c.session;
  tail.set = c.set;
  tail.salt = c.salt;
  tail.prefix_tokens = c.prefix_count;
  tail.tokens = c.token_count;
  tail.ids = std::move(c.ids);
  return tail;
}

ApiError cannot_ask() {
  return ApiError::unavailable("the worker is shutting down, or too many ask for its conversations");
}

ApiError unknown_session(std::string_view session) {
  ApiError error = ApiError::bad_field(
      "session", absl::StrCat("nothing of a conversation '", to_absl(clip_text(session)),
                              "' is cached here; GET /v1/conversations lists those that are"));
  error.http_status = 404;
  error.code = "conversation_not_found";
  return error;
}

}  // namespace

Task<ApiResult<std::vector<CachedConversation>>> list_conversations(Engine& engine,
                                                                    const std::string& model) {
  const auto most = static_cast<size_t>(kConversationsPerPlace * engine.load().max_num_seqs);
  auto found = co_await ask<std::vector<Conversation>>(
      engine, [most](const Scheduler& scheduler) { return scheduler.conversations(most); });
  if (!found) co_return cannot_ask();
  std::vector<CachedConversation> tails;
  for (Conversation& c : *found) tails.push_back(told(std::move(c), model));
  co_return tails;
}

Task<ApiResult<CachedConversation>> find_tail(Engine& engine, const std::string& model,
                                              std::string_view session) {
  const auto name = Hash128::from_hex(session);
  if (!name) co_return unknown_session(session);
  auto found = co_await ask<std::optional<Conversation>>(
      engine, [name](const Scheduler& scheduler) { return scheduler.conversation(*name); });
  if (!found) co_return cannot_ask();
  if (!*found || (*found)->ids.empty()) co_return unknown_session(session);
  co_return told(**std::move(found), model);
}

ApiResult<EngineRequest> prepare_tail(const ServedModel& model, std::string_view body) {
  auto tail = parse_conversation(body, model.api);
  if (!tail.ok()) return tail.error();
  if (tail->model != model.name) return ApiError::not_found_model(tail->model);
  if (!model.keeps_prefixes) {
    return ApiError::unsupported("", "this worker keeps no prefixes (--no-enable-prefix-caching)");
  }
  if (auto fault = unknown_token(model, "ids", tail->ids)) return *std::move(fault);
  // A request that continues the tail has at least one token more.
  if (tail->tokens >= model.total_count_max) {
    return ApiError::context_length("ids", tail->tokens, model.total_count_max);
  }
  EngineRequest engine;
  engine.spec.set = tail->set;
  engine.spec.session = tail->session;
  engine.spec.salt = tail->salt;
  engine.spec.prefix_count = tail->set.is_zero() ? 0 : static_cast<int32_t>(tail->prefix_tokens);
  engine.prompt_only = true;
  engine.spec.background = true;
  engine.prompt = std::move(tail->ids);
  return engine;
}

}  // namespace troupe
